"""What to do with a run that is neither finished nor running."""

from pathlib import Path

from proximo.catalog import config_class
from proximo.errors import FilesError, UsageError
from proximo.runs.command_line import pasted
from proximo.runs.folder.repro import NAME
from proximo.runs.folder.run import SWEEP, read_config


def was_not_finite(run: Path) -> bool:
    """Return whether a run ended because numbers were not finite, and has not continued since."""
    try:
        return (run / NAME).stat().st_mtime >= (run / "metrics.csv").stat().st_mtime
    except FileNotFoundError:
        return (run / NAME).exists()


def how_to_continue(run: Path) -> str:
    """Return a sentence with the command or the call that says what was not finite, or that continues the run."""
    if was_not_finite(run):
        return f"Its numbers were not finite. This says where: proximo doctor {pasted(run / NAME)}"
    try:
        found = read_config(run, config_class)
        if (run.parent / SWEEP).exists():  # alone, it continues equal up to rounding only
            return f"Continue the whole sweep with: {found._replace(folder=run.parent).resume_line}"
        line = found.resume_line
    except (UsageError, FilesError):  # its config.json is damaged or missing
        line = f"proximo resume {pasted(run)}"
    return f"Continue it with: {line}"
