"""How this process was started, and words of other commands, as a user can paste them into a shell."""

import math
import multiprocessing
import os
import shlex
import subprocess
import sys
from pathlib import Path


def pasted(*words: object) -> str:
    """Return words of a command as a user can paste them into a shell: paths may have spaces and quotes."""
    join = subprocess.list2cmdline if sys.platform == "win32" else shlex.join  # cmd.exe knows double quotes only
    return join([f"./{word}" if isinstance(word, Path) and str(word)[0] == "-" else str(word) for word in words])


def torchrun_words() -> list[str]:
    """Return the words that start as many processes as there are now; [] for one. HEAD is one of several nodes."""
    size = int(os.environ.get("WORLD_SIZE", "1"))
    local_size = int(os.environ.get("LOCAL_WORLD_SIZE", size))
    if size == 1:
        return []
    if local_size == size:
        return ["torchrun", "--standalone", f"--nproc_per_node={size}"]
    return ["torchrun", f"--nnodes={math.ceil(size / local_size)}", f"--nproc_per_node={local_size}",
            "--rdzv-backend=c10d", "--rdzv-endpoint=HEAD:29400"]


def command_line() -> str:
    """Return `proximo train ...` or `python script.py ...`, behind torchrun if it was; "" in a notebook."""
    program, *words = sys.argv or [""]
    start = torchrun_words()
    if Path(program).name in ("proximo", "proximo.exe") or Path(program).parts[-2:] == ("proximo", "__main__.py"):
        return shlex.join([*start, *(["-m"] if start else []), "proximo", *words])
    if not program.endswith(".py") or Path(program).name == "ipykernel_launcher.py":
        return ""
    return shlex.join([*(start or ["python"]), program, *words])


def end_if_spawned() -> None:
    """End a process that another one has spawned and that is still running the program again, up to its training.

    Such a process would train too, and start further ones: the program has no `if __name__ == "__main__":`.
    """
    if getattr(multiprocessing.current_process(), "_inheriting", False):
        raise SystemExit("proximo: A process that this program has started runs the program again. Train under "
                         "`if __name__ == \"__main__\":`.")
