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
        self._known: np.ndarray = np.empty((0, columns), int)  # how many numbers each mean of a point is over

    def add(self, rows: np.ndarray) -> None:
        """Add rows (R, columns); rows that do not fill a point wait for others."""
        self._rest = np.concatenate([self._rest, rows])
        while len(self._rest) >= self.every:
            if len(self.points) == self.most:
                self.points, self._known = self._merge(self.points, self._known, 2)
                self.every, self.stamp = 2 * self.every, self.stamp + 1
            count = min(self.most - len(self.points), len(self._rest) // self.every) * self.every
            rows, self._rest = np.split(self._rest, [count])
            points, known = self._merge(rows, np.isfinite(rows).astype(int), self.every)
            self.points, self._known = np.concatenate([self.points, points]), np.concatenate([self._known, known])

    def _merge(self, rows: np.ndarray, known: np.ndarray, every: int) -> tuple[np.ndarray, np.ndarray]:
        """Return a point for each group of `every` rows, and how many numbers each of its means is over.

        Args:
            rows: (R, columns).
            known: (R, columns) how many numbers each value is the mean of; 0: it is not finite and does not count.
            every: Rows of a group.
        """
        groups, counts = (x.reshape(-1, every, rows.shape[1]) for x in (rows, known))
        count = counts.sum(axis=1)
        total = (np.where(counts > 0, groups, 0.0) * counts).sum(axis=1)
        points = np.divide(total, count, out=np.full(total.shape, np.nan), where=count > 0)
        points[:, :self._last] = groups[:, -1, :self._last]
        return points, count
