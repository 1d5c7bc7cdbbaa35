"""Compare the measured coverage of folders with their floors in pyproject.toml.

    python -m pytest -n 3 --cov --cov-report=
    python -m coverage json -o build/coverage/report.json
    python tools/coverage_floor.py build/coverage/report.json

Coverage is the share of statements and branches that ran. A floor is a number of percent under
[tool.proximo.coverage], named by a folder of proximo/. Exit code 1: a folder is below its floor.
"""

import argparse
import json
import sys
import tomllib
from pathlib import Path
from typing import Any

PYPROJECT = Path(__file__).resolve().parents[1] / "pyproject.toml"


def covered_percent(report: dict[str, Any], folder: str) -> float:
    """Return the percentage of statements and branches of proximo/FOLDER that ran.

    Args:
        report: The content of a JSON report of coverage.py.
        folder: The name of a folder of proximo/.

    Raises:
        SystemExit: The report has no file of this folder.
    """
    totals = [file["summary"] for path, file in report["files"].items()
              if Path(path).as_posix().startswith(f"proximo/{folder}/")]
    if not totals:
        raise SystemExit(f"The report has no file of proximo/{folder}. Run the tests with --cov first.")
    ran = sum(total["covered_lines"] + total["covered_branches"] for total in totals)
    return 100 * ran / max(sum(total["num_statements"] + total["num_branches"] for total in totals), 1)


def main() -> int:
    """Print one line for each folder; return 1 if one is below its floor."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("report", type=Path, help="JSON report of coverage.py")
    report = json.loads(parser.parse_args().report.read_text())
    floors = tomllib.loads(PYPROJECT.read_text())["tool"]["proximo"]["coverage"]
    found = {folder: covered_percent(report, folder) for folder in floors}
    for folder, floor in floors.items():
        verdict = "ok" if found[folder] >= floor else "TOO LOW"
        print(f"proximo/{folder:<10} {found[folder]:6.1f} %  floor {floor} %  {verdict}")
    return int(any(found[folder] < floor for folder, floor in floors.items()))


if __name__ == "__main__":
    sys.exit(main())
