"""The section of a report on a population: its rounds, who copied whom, and the values of the best member's line."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from proximo.bench.files import read_record
from proximo.bench.records import MemberRecord, PopulationRecord
from proximo.bench.report.page import Folded, Section
from proximo.bench.text import Table, number_text
from proximo.runs.folder.files import POPULATION_FILE

MOST_MEMBERS = 2000  # lines of the table of all rounds

Rounds = Sequence[Sequence[MemberRecord]]


def population_sections(directory: Path) -> list[Section]:
    """Return the section on the rounds of a population that have finished; none if the folder is not that of one.

    Args:
        directory: The folder with pbt.json.
    """
    record = read_record(directory / POPULATION_FILE, PopulationRecord)
    rounds: Rounds = [members for members in record.get("rounds", []) if members]
    if not rounds:
        return []
    fields = [*dict.fromkeys(name for members in rounds for one in members for name in one["values"])]
    return [Section("Population", [_rounds_table(rounds), _line_table(rounds, fields),
                                   Folded("Show every member of every round", _members_table(rounds, fields))])]


def best_member(members: Sequence[MemberRecord]) -> int:
    """Return the number of the member with the highest score; without any, of the first that has not failed."""
    order = [(not one["failed"], -np.inf if one["score"] is None else one["score"]) for one in members]
    return order.index(max(order))


def line_of(rounds: Rounds, member: int) -> list[tuple[int, int]]:
    """Return the number of each round, from 1, and of the member in it whose run a member of the newest continues."""
    line: list[tuple[int, int]] = []
    for number in range(len(rounds), 0, -1):
        line.insert(0, (number, member))
        parent = rounds[number - 1][member]["parent"]
        if number == 1 or parent is None or not 0 <= parent < len(rounds[number - 2]):
            break
        member = parent
    return line


def _rounds_table(rounds: Rounds) -> Table:
    rows = []
    for number, members in enumerate(rounds, 1):
        scores = [one["score"] for one in members if one["score"] is not None]
        ends = (np.max(scores), np.mean(scores), np.min(scores)) if scores else (None, None, None)
        copies = ", ".join(f"{m:02} from {one['parent']:02}" for m, one in enumerate(members)
                           if one["parent"] not in (None, m))
        failed = ", ".join(f"{m:02}" for m, one in enumerate(members) if one["failed"])
        best = f"{best_member(members):02}" if scores else "-"
        rows.append([str(number), best, *map(number_text, ends), copies or "-", failed or "-"])
    return Table(head=["round", "best member", "best score", "mean", "lowest", "copied at its beginning", "failed"],
                 rows=rows, note="Scores are those of the rounds, as pbt.json has them. `03 from 01`: member 03 was "
                                 "replaced by a copy of member 01 of the round before, with changed values.")


def _line_table(rounds: Rounds, fields: Sequence[str]) -> Table:
    rows = [_member_row(number, member, rounds[number - 1][member], fields)
            for number, member in line_of(rounds, best_member(rounds[-1]))]
    return Table(head=["round", "member", "score", *fields], rows=rows,
                 note="The line of the best member of the newest round: the runs that it continues, and the values "
                      "with which each of them was trained.")


def _members_table(rounds: Rounds, fields: Sequence[str]) -> Table:
    rows = [[*_member_row(number, m, one, fields), "-" if one["parent"] is None else f"{one['parent']:02}",
             str(one["seed"])] for number, members in enumerate(rounds, 1) for m, one in enumerate(members)]
    return Table(head=["round", "member", "score", *fields, "continues member", "seed"], rows=rows[-MOST_MEMBERS:],
                 note="Numbers are rounded; pbt.json has all digits.")


def _member_row(number: int, member: int, one: MemberRecord, fields: Sequence[str]) -> list[str]:
    score = "failed" if one["failed"] else number_text(one["score"])
    return [str(number), f"{member:02}", score, *(_value_text(one["values"].get(name, "-")) for name in fields)]


def _value_text(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
