"""Keep docs/walkthrough.md, its pictures and its notebook in step with the programs of examples/walkthrough/.

python tools/walkthrough.py train      # runs the ten programs; nothing of docs/ changes
python tools/walkthrough.py pictures   # copies the pictures of runs/walkthrough/ (WALKTHROUGH_STEPS=40000), writes the
                                       # numbers to docs/walkthrough/numbers.csv and to the tables of the page
python tools/walkthrough.py notebook   # writes docs/walkthrough.ipynb from the page and the programs
"""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from PIL import Image

ROOT = Path(__file__).resolve().parents[1]
PROGRAMS = ROOT / "examples" / "walkthrough"
PAGE = ROOT / "docs" / "walkthrough.md"
NOTEBOOK = ROOT / "docs" / "walkthrough.ipynb"
PICTURES = ROOT / "docs" / "walkthrough"
RUNS = ROOT / "runs" / "walkthrough"
BUDGET = """%matplotlib inline

import os

# Environment steps of each training. The pictures of the page show 40000: a quarter of an hour for all programs.
os.environ.setdefault("WALKTHROUGH_STEPS", "8000")
"""


def program(number: int) -> Path:
    """Return the program of a step of the walk-through."""
    (path,) = PROGRAMS.glob(f"{number:02d}_*.py")
    return path


def run_programs() -> None:
    """Run the ten programs one after another."""
    for number in range(1, 11):
        subprocess.run([sys.executable, str(program(number))], check=True, cwd=ROOT)


def record(folder: Path) -> None:
    """Copy the pictures of a folder of runs, and write the last number of each curve: mean, worst and best seed.

    The tables of the page get the same numbers; its text has to be checked by a person.
    """
    lines, page = ["program,variant,mean,worst,best"], PAGE.read_text()
    for number in range(1, 11):
        name = program(number).stem
        Image.open(folder / f"{name}.png").convert("RGB").quantize(64).save(PICTURES / f"{name}.png", optimize=True)
        ends: dict[str, list[float]] = {}
        for row in (folder / f"{name}.csv").read_text().splitlines():
            variant, _, _, *curve = row.split(",")
            ends.setdefault(variant, []).append(float(curve[-1]))
        rows = [(variant, f"{sum(x) / len(x):.1f}", f"{min(x):.1f}", f"{max(x):.1f}") for variant, x in ends.items()]
        lines += [",".join((name, *row)) for row in rows]
        table = "".join(f"| {variant} | {mean} | {worst} to {best} |\n" for variant, mean, worst, best in rows)
        head = rf"(\({PICTURES.name}/{name}\.png\)\n\n\|.*\n\|.*\n)"  # the picture, and the first lines of the table
        page = re.sub(head + r"(?:\|.*\n)*", lambda found, table=table: found[1] + table, page)
    PAGE.write_text(page)
    (PICTURES / "numbers.csv").write_text("\n".join(lines) + "\n")


def sections() -> list[tuple[int, str]]:
    """Split the page: the number of the step that each part is about (0 for none), and its text."""
    parts = re.split(r"^(?=## )", PAGE.read_text(), flags=re.M)
    return [(int(found[1]) if (found := re.match(r"## (\d+)\. ", part)) else 0, part) for part in parts]


def code_cells(number: int) -> list[str]:
    """Return the program of a step as cells. What it imports from other files is in cells before it."""
    text = program(number).read_text().replace("from curves import Episodes, run\n", "")
    begin, call = text.split('if __name__ == "__main__":\n')
    text = begin + re.sub(r"^    ", "", call, flags=re.M)
    if number < 10:
        return [text]
    whole, _ = (ROOT / "examples" / "single_file_ppo.py").read_text().split("def parse_arguments")
    text = re.sub(r"^spec = .*\n.*\n.*\n\n\n|^import importlib.util\n|^from pathlib .*\n", "", text, flags=re.M)
    text = re.sub(r"(?<!_)ppo\.", "", text)
    return [whole.rstrip() + "\n", text]


def make_notebook() -> str:
    """Return the notebook: the text of the page, and after each of its sections the whole program."""
    from nbformat import v4, writes

    cells: list[Any] = []
    for i, (number, text) in enumerate(sections()):
        cells.append(v4.new_markdown_cell(text.strip()))
        sources = code_cells(number) if number else [BUDGET, (PROGRAMS / "curves.py").read_text()] if i == 0 else []
        cells += [v4.new_code_cell(source.strip()) for source in sources]
    for i, cell in enumerate(cells):
        cell["id"] = f"cell-{i}"
    return str(writes(v4.new_notebook(cells=cells, metadata={"language_info": {"name": "python"}}))) + "\n"


def main() -> None:
    """Do what the first argument says."""
    action = sys.argv[1] if len(sys.argv) == 2 else ""
    if action not in ("train", "pictures", "notebook"):
        raise SystemExit(__doc__)
    if action == "train":
        run_programs()
    elif action == "pictures":
        record(RUNS)
    else:
        NOTEBOOK.write_text(make_notebook())


if __name__ == "__main__":
    main()
