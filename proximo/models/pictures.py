"""Figures of matplotlib as files."""

from pathlib import Path
from typing import TYPE_CHECKING

from proximo.errors import UsageError
from proximo.runs.writing import ELSEWHERE, whole_file

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")  # Okabe & Ito 2008


def save_figure(figure: "Figure", out: Path, otherwise: str = ELSEWHERE) -> Path:
    """Write a picture whose format is that of the ending of `out`, PNG without one, and return `out`.

    Args:
        figure: The picture.
        out: The file.
        otherwise: What to do where it cannot be written; see `unwritten` in runs/writing.py.

    Raises:
        UsageError: The format is unknown.
        FilesError: `out` cannot be written.
    """
    check_picture(out)
    with whole_file(out, otherwise) as beside:
        figure.savefig(beside, format=_format(out))
    return out


def check_picture(out: Path) -> None:
    """Raise UsageError if the ending of a file is no format of pictures."""
    from matplotlib.backend_bases import FigureCanvasBase

    known = FigureCanvasBase.get_supported_filetypes()
    if _format(out) not in known:
        raise UsageError(f"{out} does not end in a format of pictures: {', '.join(sorted(known))}. Name it "
                         f"{out.with_suffix('.png').name}.")


def _format(out: Path) -> str:
    return out.suffix.removeprefix(".").lower() or "png"


def drawn_text(text: str) -> str:
    """Return text that matplotlib draws as it is: `$` begins no formula, and a label that begins with `_` is shown."""
    return f"{' ' * text.startswith('_')}{text}".replace("$", r"\$")
