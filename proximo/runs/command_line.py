"""The command of this process and words of other commands, as a user can paste them into a shell."""

import os
import shlex
import subprocess
import sys
from pathlib import Path


def pasted(*words: object) -> str:
    """Return words of a command as a user can paste them into a shell: paths may have spaces and quotes."""
    join = subprocess.list2cmdline if sys.platform == "win32" else shlex.join  # cmd.exe knows double quotes only
    return join([f"./{word}" if isinstance(word, Path) and str(word)[0] == "-" else str(word) for word in words])


def command_line() -> str:
    """Return `proximo train ...` or `python script.py ...`, behind torchrun if it was; "" in a notebook."""
    program, *words = sys.argv or [""]
    processes = int(os.environ.get("WORLD_SIZE", "1"))
    start = ["torchrun", "--standalone", f"--nproc_per_node={processes}"] if processes > 1 else []
    if Path(program).name in ("proximo", "proximo.exe") or Path(program).parts[-2:] == ("proximo", "__main__.py"):
        return shlex.join([*start, *(["-m"] if start else []), "proximo", *words])
    if not program.endswith(".py") or Path(program).name == "ipykernel_launcher.py":
        return ""
    return shlex.join([*(start or ["python"]), program, *words])
