"""A curve of any length as a limited number of points."""

import numpy as np


class Thinned:
    """Rows of numbers as at most `most` points. A point stands for `every` rows.

    Points are only added, until there are too many: then `every` doubles, and `stamp` changes.

    Args:
        most: The largest number of points, even.
        last: So many columns at the left have the value of a point's last row, the others the mean of its rows.
    """

    def __init__(self, most: int, last: int) -> None:
        self.most, self._last = most, last
        self.stamp = 0
        self.clear(0)

    def clear(self, columns: int) -> None:
        """Forget every row.

        Args:
            columns: The number of columns from here on.
        """
        self.every = 1
        self.stamp += 1
        self.points = self._rest = np.empty((0, columns))

    def add(self, rows: np.ndarray) -> None:
        """Add rows (R, columns); rows that do not fill a point wait for others."""
        self._rest = np.concatenate([self._rest, rows])
        while len(self._rest) >= self.every:
            if len(self.points) == self.most:
                self.points, self.every, self.stamp = self._merge(self.points, 2), 2 * self.every, self.stamp + 1
            count = min(self.most - len(self.points), len(self._rest) // self.every) * self.every
            self.points = np.concatenate([self.points, self._merge(self._rest[:count], self.every)])
            self._rest = self._rest[count:]

    def _merge(self, rows: np.ndarray, every: int) -> np.ndarray:
        """Return a point for each group of `every` rows; values that are not finite do not count."""
        groups = rows.reshape(-1, every, rows.shape[1])
        known = np.isfinite(groups)
        count = known.sum(axis=1)
        total = np.where(known, groups, 0.0).sum(axis=1)
        points = np.divide(total, count, out=np.full(total.shape, np.nan), where=count > 0)
        points[:, :self._last] = groups[:, -1, :self._last]
        return points
