"""What the page says of a run, from the lines of its files."""

import pytest

from proximo.bench.live.follow import RECENT, Curves
from proximo.bench.live.state import time_shares


def test_shares_of_the_time_are_means_over_the_newest_lines(tmp_path):
    """Older lines and empty cells do not count; a run whose environments are compiled has none."""
    lines = ["iteration,global_step,seconds,time/environment,time/acting", "1,10,1,,"]
    lines += [f"{i},{10 * i},{i},0.9,0.05" for i in range(2, 10)]
    lines += [f"{i},{10 * i},{i},{0.4 + 0.1 * (i % 2)},0.25" for i in range(10, 10 + RECENT)]
    (tmp_path / "metrics.csv").write_text("\n".join(lines) + "\n")
    curves = Curves(tmp_path)
    curves.refresh()
    assert time_shares(curves) == pytest.approx({"environment": 0.45, "acting": 0.25})
    assert time_shares(Curves(tmp_path / "none")) == {}
