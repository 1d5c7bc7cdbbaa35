"""Run command lines of Proximo one after another in this process: the child of same_weights.py.

`python same_weights_worker.py CHECKOUT` reads a request a line from standard input, `{"words": [...], "log": FILE,
"env": {...}}`, and answers each with a line, `{"code": N, "strays": [...]}`. What a run prints goes to its log.
"""

import gc
import json
import os
import runpy
import sys
import traceback
from pathlib import Path
from typing import Any, TextIO


def serve(checkout: Path) -> None:
    """Answer requests until standard input ends; the first line says where the package was found."""
    requests, answers = take_pipes()
    import proximo

    answer(answers, {"file": str(proximo.__file__), "strays": strays(checkout)})
    for line in requests:
        request = json.loads(line)
        os.environ |= request["env"]
        code = run(request["words"], Path(request["log"]))
        answer(answers, {"code": code, "strays": strays(checkout)})


def take_pipes() -> tuple[TextIO, TextIO]:
    """Standard input and output for the parent alone: what runs here finds an empty input and its own log."""
    requests, answers = os.fdopen(os.dup(0)), os.fdopen(os.dup(1), "w")
    with open(os.devnull) as nothing:
        os.dup2(nothing.fileno(), 0)
    os.dup2(2, 1)
    return requests, answers


def answer(answers: TextIO, content: dict[str, Any]) -> None:
    """Write one line to the parent."""
    print(json.dumps(content), file=answers, flush=True)


def strays(checkout: Path) -> list[str]:
    """Return the files of loaded modules of the package that lie outside the checkout."""
    files = [str(getattr(module, "__file__", None)) for name, module in list(sys.modules.items())
             if name.partition(".")[0] == "proximo"]
    return [file for file in files if not Path(file).resolve().is_relative_to(checkout.resolve())]


def run(words: list[str], log: Path) -> int:
    """Run `python -m proximo WORDS` in this process and return its exit code."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with open(log, "a") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    sys.argv = ["proximo", *words]
    try:
        runpy.run_module("proximo", run_name="__main__", alter_sys=True)
        code: object = 0
    except SystemExit as end:
        code = end.code
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    gc.collect()
    return code if isinstance(code, int) else int(code is not None)


if __name__ == "__main__":
    serve(Path(sys.argv[1]))
