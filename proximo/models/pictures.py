"""Figures of matplotlib as files."""

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from proximo.errors import UsageError
from proximo.runs.folder.writing import ELSEWHERE, whole_file

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")  # Okabe & Ito 2008
TRUE_TYPE = 42  # publishers refuse fonts of Type 3, matplotlib's default


@contextmanager
def plain_style() -> Iterator[None]:
    """Within the block, or the decorated function, text is drawn as it is and fonts are embedded as TrueType.

    If matplotlibrc says `text.usetex: True`, LaTeX would need escapes in the names of runs and settings.
    """
    from matplotlib import rc_context

    with rc_context({"text.usetex": False, "pdf.fonttype": TRUE_TYPE, "ps.fonttype": TRUE_TYPE}):
        yield


@plain_style()
def save_figure(figure: "Figure", out: Path, otherwise: str = ELSEWHERE) -> Path:
    """Write a picture whose format is that of the ending of `out`, PNG without one, and return `out`.

    Args:
        figure: The picture.
        out: The file.
        otherwise: What to do where it cannot be written; see `unwritten` in runs/folder/writing.py.

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


def color_places(panels: Sequence[Collection[str]]) -> dict[str, int]:
    """Number the labels of several panels: a label has one number in all of them, and no two of a panel have the same.

    The numbers are small, because labels that are never in the same panel may share one.
    """
    places: dict[str, int] = {}
    for label in dict.fromkeys(label for panel in panels for label in panel):
        taken = {places.get(other) for panel in panels if label in panel for other in panel}
        places[label] = next(place for place in count() if place not in taken)
    return places
