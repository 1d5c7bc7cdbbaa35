"""Walk the path of a user who has only the wheel: install, train, watch, evaluate, export, deploy, share, verify.

    python tools/strangers_path.py [--wheel FILE] [--out DIR]

Without --wheel, the wheel is built from the working tree. It is installed into a virtual environment of its own. The
exported file runs in a second one that has only onnxruntime and numpy: the program of docs/deploy.md. Every command
has to end with exit code 0; the first that does not ends the walk, with exit code 1. pip needs a package index.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
CONSTRAINTS = str(ROOT / "constraints.txt")
OTHERS = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")
ENVIRONMENT = {name: value for name, value in os.environ.items() if name not in OTHERS}
ALONE = "import importlib.util as u, sys; sys.exit(any(map(u.find_spec, ('torch', 'proximo', 'gymnasium', 'onnx'))))"


class Step(NamedTuple):
    """What a user does: one command, or several at the same time."""

    name: str
    commands: tuple[Sequence[str], ...]


def install_steps(wheel: Path) -> list[Step]:
    """Return how both virtual environments are made. torch comes first, so that no other package chooses its build."""
    pip = ["user/bin/python", "-m", "pip", "install", "-q", "-c", CONSTRAINTS]
    return [Step("make a virtual environment", ([sys.executable, "-m", "venv", "user"],)),
            Step("install torch", ([*pip, "torch"],)),
            Step("install the wheel", ([*pip, f"{wheel}[export]"],)),
            Step("make one without torch", ([sys.executable, "-m", "venv", "device"],)),
            Step("install onnxruntime", (["device/bin/python", *pip[1:], "onnxruntime", "numpy"],)),
            Step("nothing else is there", (["device/bin/python", "-I", "-c", ALONE],))]


def user_steps() -> list[Step]:
    """Return the commands of the documentation, in the order of a first day."""
    proximo = "user/bin/proximo"
    train = [proximo, "train", "--env-id", "CartPole-v1", "--recurrent", "lstm", "--total-timesteps", "20480",
             "--seed", "1", "--run-dir", "run"]
    return [Step("show the version", ([proximo, "--version"],)),
            Step("list the environments", ([proximo, "list"],)),
            Step("train a preset, watch it live", (train, [proximo, "live", ".", "--text"])),
            Step("evaluate", ([proximo, "eval", "run", "--episodes", "5", "--deterministic"],)),
            Step("plot", ([proximo, "plot", "run", "--out", "curve.png"],)),
            Step("export", ([proximo, "export", "run", "--to", "onnx", "--out", "agent.onnx"],)),
            Step("run the exported file", (["device/bin/python", "-I", "deploy.py"],)),
            Step("write a card", ([proximo, "card", "run", "--episodes", "10"],)),
            Step("push", ([proximo, "push", "run", "shelf"],)),
            Step("pull", ([proximo, "pull", "shelf", "theirs"],)),
            Step("verify", ([proximo, "verify", "theirs"],)),
            Step("look for problems", ([proximo, "doctor"],))]


def deploy_program() -> str:
    """Return the program of docs/deploy.md that needs onnxruntime and numpy only: its first one with onnxruntime."""
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "deploy.md").read_text(), re.S)
    return next(block for block in blocks if "import onnxruntime" in block)


def walk(step: Step, folder: Path) -> list[int]:
    """Start the commands of a step together, and return their exit codes; their output goes to FOLDER/log.txt."""
    with (folder / "log.txt").open("a") as log:
        log.write(f"\n# {step.name}\n")
        log.flush()
        started = [subprocess.Popen(words, cwd=folder, env=ENVIRONMENT, stdin=subprocess.DEVNULL, stdout=log,
                                    stderr=subprocess.STDOUT) for words in step.commands]
        return [process.wait() for process in started]


def build_wheel(folder: Path) -> Path:
    """Build the wheel as a release does, through the sdist, and return its path."""
    words = [sys.executable, "-m", "build", "--outdir", folder / "dist", ROOT]
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
    (wheel,) = (folder / "dist").glob("*.whl")
    return wheel


def main() -> int:
    """Walk the whole path, print a table, and return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--wheel", type=Path, help="a wheel that is built already")
    parser.add_argument("--out", type=Path, help="an empty folder that is kept (default: a temporary one)")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = (args.out or Path(temporary)).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        wheel = args.wheel.resolve() if args.wheel else build_wheel(folder)
        (folder / "deploy.py").write_text(deploy_program())
        print(f"{'step':32} {'seconds':>8}  exit codes", flush=True)
        for step in (*install_steps(wheel), *user_steps()):
            began = time.perf_counter()
            codes = walk(step, folder)
            print(f"{step.name:32} {time.perf_counter() - began:8.1f}  {' '.join(map(str, codes))}", flush=True)
            if any(codes):
                print((folder / "log.txt").read_text()[-4000:], file=sys.stderr)
                return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
