"""The results of a sweep, which are printed where it ends: after `proximo sweep` and after `proximo resume`."""

from pathlib import Path
from typing import Any

import numpy as np

from proximo.bench.files import read_record
from proximo.bench.records import Summary
from proximo.bench.text import number_text
from proximo.errors import NumbersError
from proximo.runs.run_group import member_folders
from proximo.runs.session import Session


def train_and_print(session: Session) -> int:
    """Train a sweep to its end and print its table, also if some members have failed; return the exit code.

    Raises:
        ProximoError: Training failed.
    """
    try:
        code = session.train_to_end()
    except NumbersError:  # of some members; the others have finished
        print(sweep_table(session.folder))
        raise
    if code == 0:
        print(sweep_table(session.folder))
    return code


def sweep_table(folder: Path) -> str:
    """Return a table of the mean returns at the end, over seeds, one line per combination of values, best first.

    The values are those in the names of the members' folders: all that differ.

    Args:
        folder: That of a sweep.
    """
    groups: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    names: list[str] = []
    for member in member_folders(folder):
        values = dict(part.split("=", 1) for part in member.name.split(",") if "=" in part and part[:5] != "seed=")
        names = names or [*values]
        summary = read_record(member / "summary.json", Summary)
        groups.setdefault(tuple(values.get(name, "") for name in names), []).append(summary)
    lines = []
    for group, summaries in groups.items():
        scores = [one["episodic_return_mean"] for one in summaries if one.get("episodic_return_mean") is not None]
        ends = (np.mean(scores), np.min(scores), np.max(scores)) if scores else (None, None, None)
        seeds = str(len(scores)) if len(scores) == len(summaries) else f"{len(scores)} of {len(summaries)}"
        lines.append((-np.inf if ends[0] is None else ends[0], [*group, seeds, *(number_text(end) for end in ends)]))
    rows = [[*names, "seeds", "return", "lowest", "highest"],
            *(row for _, row in sorted(lines, key=lambda line: line[0], reverse=True))]
    widths = [max(map(len, column)) for column in zip(*rows)]
    return "\n".join("  ".join(cell.rjust(width) for cell, width in zip(row, widths)) for row in rows)
