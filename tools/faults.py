"""Run the whole campaign of faults (tests/faults/), print its table, and write the table to docs/reliability.md.

    python tools/faults.py            every row
    python tools/faults.py --fast     the rows that `make test` runs
    python tools/faults.py --print    only print, leave the page as it is
    python tools/faults.py -- -k kill further words are those of pytest; the page is left as it is

The exit code is that of pytest. A row is one test; a fuzzer counts each of its examples as a case.
"""

import argparse
import os
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "reliability.md"
REPORT = ROOT / "build" / "faults" / "report.xml"
BEGIN, END = "<!-- begin: written by tools/faults.py -->", "<!-- end: written by tools/faults.py -->"


class Count(NamedTuple):
    """What became of the cases of one area."""

    area: str
    cases: int = 0
    survived: int = 0
    failed: int = 0
    skipped: int = 0


def count_areas(tests: Iterable[ElementTree.Element]) -> list[Count]:
    """Return the counts of each area in alphabetical order, from the test cases of a JUnit report.

    A test that fails counts as one failed case, whatever it tried before.
    """
    found: dict[str, Count] = {}
    for test in tests:
        properties = {one.get("name"): one.get("value", "") for one in test.iter("property")}
        area, tried = properties.get("area", "?"), max(1, int(properties.get("cases", "1")))
        old = found.get(area, Count(area))
        if test.find("failure") is not None or test.find("error") is not None:
            found[area] = old._replace(cases=old.cases + tried, survived=old.survived + tried - 1,
                                       failed=old.failed + 1)
        elif test.find("skipped") is not None:
            found[area] = old._replace(skipped=old.skipped + 1)
        else:
            found[area] = old._replace(cases=old.cases + tried, survived=old.survived + tried)
    return [found[area] for area in sorted(found)]


def table_of(counts: list[Count]) -> str:
    """Return the counts as a Markdown table, with their sums in the last row."""
    total = Count("all", *(sum(getattr(one, name) for one in counts) for name in Count._fields[1:]))
    lines = ["| area | cases | survived | failed | not run here |", "|---|---|---|---|---|"]
    lines += [f"| {' | '.join(map(str, one))} |" for one in (*counts, total)]
    return "\n".join(lines)


def with_table(page: str, table: str) -> str:
    """Return the page with another table between its two markers; ValueError if they are missing."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"{PAGE.name} lacks the lines {BEGIN} and {END}. Add them where the table belongs.")
    return f"{before}{BEGIN}\n\n{table}\n\n{END}{after}"


def main() -> int:
    """Run the command. Returns the exit code of pytest."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--fast", action="store_true", help="only the rows that make test runs")
    parser.add_argument("--print", action="store_true", help="leave docs/reliability.md as it is")
    parser.add_argument("words", nargs="*", help="of pytest, after --")
    given = parser.parse_args()
    REPORT.parent.mkdir(parents=True, exist_ok=True)
    REPORT.unlink(missing_ok=True)
    parallel = [] if "-n" in given.words else ["-n", "2", "--dist", "worksteal"]
    words = ["tests/faults", f"--junitxml={REPORT}", *parallel, *given.words]
    code = subprocess.run([sys.executable, "-m", "pytest", *words], cwd=ROOT,
                          env=os.environ | {"PROXIMO_FAULTS": "fast" if given.fast else "all"}).returncode
    if not REPORT.exists():
        return code or 1
    what = "the fast part, as in `make test`" if given.fast else "the whole campaign, `make faults`"
    counts = table_of(count_areas(ElementTree.parse(REPORT).iter("testcase")))
    table = f"Counts of {what}:\n\n{counts}"
    print(table)
    if not (given.print or given.words):
        PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8"), table), encoding="utf-8")
    return code


if __name__ == "__main__":
    sys.exit(main())
