"""Kills a run at the n-th of its file operations, or lets that operation fail, and resumes it.

    python -m tests.support.crash_points FOLDER MODE FIRST EVERY

One process imports everything once and forks one child for each point, so that a point costs no start of Python. The child
trains; at its n-th operation on the folder of the run it ends at once (`before`, `after`, or `half`: with half of the bytes
of a file of tensors), it gets SIGTERM (`term`), or the operation raises OSError (`full`, `broken`). A second child runs the
same command with --resume auto. Each point is printed as a line of JSON: the number, the operation, how both ended, and what is left.
"""

import builtins
import errno
import hashlib
import io
import json
import os
import shutil
import signal
import sys
from pathlib import Path

import proximo.envs.gym
import proximo.on_torch.train
import proximo.runs.folder.checkpoint
import proximo.runs.interrupts.recent
import proximo.runs.start
from proximo.cli.main import main
from proximo.errors import FilesError
from proximo.runs.folder.checkpoint import checkpoints, load_tree

KILLED = 137
proximo.runs.interrupts.recent.CHECKPOINT_SHARE = float("inf")
proximo.runs.interrupts.recent.CHECKPOINT_SECONDS = 0.0  # all checkpoints that are due, also of fast iterations
WORDS = ["train", "ppo", "--env-id", "CartPole-v1", "--num-envs", "2", "--num-steps", "16", "--num-minibatches", "2",
         "--update-epochs", "1", "--hidden-sizes", "8", "8", "--logger", "none", "--checkpoint-every", "2", "--keep-checkpoints",
         "2", "--total-timesteps", "96"]
PATCHED = ((os, "replace"), (os, "rename"), (os, "fsync"), (os, "open"), (os, "mkdir"), (os, "unlink"), (os, "rmdir"),
           (builtins, "open"), (io, "open"), (proximo.runs.folder.checkpoint, "save_file"))
ERRORS = {"full": errno.ENOSPC, "broken": errno.EIO}


def interpose(folder, number, mode):
    """Let the file operation of this number, counted from 1, go wrong; reading does not count."""
    count = [0]

    def guarded(name, function):
        def act(*args, **keywords):
            if not concerns(folder, name, args, keywords):
                return function(*args, **keywords)
            count[0] += 1
            if count[0] != number:
                return function(*args, **keywords)
            (folder.parent / "operation").write_text(name)
            if mode == "term":
                os.kill(os.getpid(), signal.SIGTERM)
                return function(*args, **keywords)
            if mode in ERRORS:
                raise OSError(ERRORS[mode], os.strerror(ERRORS[mode]), str(args[0])[:200])
            try:
                if mode != "before":
                    function(*args, **keywords)
                if mode == "half" and name == "save_file":
                    os.truncate(args[1], os.path.getsize(args[1]) // 2)
            finally:  # also after an operation that has failed, such as mkdir of a folder that exists
                os._exit(KILLED)

        return act

    for module, name in PATCHED:
        setattr(module, name, guarded(name, getattr(module, name)))


def concerns(folder, name, args, keywords):
    """Whether an operation writes below the folder of the run, or next to it."""
    if name == "fsync":
        return True
    path = args[1] if name == "save_file" else args[0]
    if not isinstance(path, (str, os.PathLike)) or not os.path.abspath(path).startswith(str(folder)):
        return False
    if name != "open":
        return True
    flags = args[1] if len(args) > 1 else keywords.get("mode", "r")
    return bool(flags & (os.O_WRONLY | os.O_RDWR)) if isinstance(flags, int) else bool(set(flags) & set("wax+"))


def child(output, act):
    """Run a function in a child process, and return its exit code."""
    pid = os.fork()
    if pid == 0:
        code = 99
        try:
            with open(output, "w") as file:
                os.dup2(file.fileno(), 1)
                os.dup2(file.fileno(), 2)
            code = act()
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def result(folder):
    """The final weights, the lines of the log without times, and files that should not be there."""
    tensors = folder / "model" / "tensors.safetensors"
    lines = [line.split(",")[:2] for line in (folder / "metrics.csv").read_text().splitlines()]
    return {"weights": hashlib.sha256(tensors.read_bytes()).hexdigest(), "lines": lines,
            "left": sorted(str(path.relative_to(folder)) for path in folder.rglob(".*"))}


def has_model(folder):
    """Whether a run that has a checkpoint has a whole model too: `eval` must work at any time after."""
    if not checkpoints(folder):
        return True
    try:
        return bool(load_tree(folder / "model"))
    except FilesError:
        return False


def tried(place, number, mode):
    folder = place / "run"
    shutil.rmtree(folder, ignore_errors=True)
    (place / "operation").unlink(missing_ok=True)
    words = [*WORDS, "--run-dir", str(folder), "--resume", "auto"]

    def train():
        interpose(folder, number, mode)
        return main(words)

    first = child(place / "first.txt", train)
    name = (place / "operation").read_text() if (place / "operation").exists() else ""
    model = has_model(folder)
    second = child(place / "second.txt", lambda: main(words))
    said = (place / "first.txt").read_text() + (place / "second.txt").read_text()
    return {"number": number, "operation": name, "mode": mode, "first": first, "second": second, "model": model,
            "traceback": said[-2000:] if "Traceback" in said else "", **(result(folder) if second == 0 else {})}


if __name__ == "__main__":
    place, mode, number, every = Path(sys.argv[1]).resolve(), sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    print(json.dumps(tried(place, 0, "before")), flush=True)  # nothing goes wrong: what all others are compared with
    while True:
        point = tried(place, number, mode)
        if not point["operation"]:
            break
        print(json.dumps(point), flush=True)
        number += every
