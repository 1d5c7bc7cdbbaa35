"""Prove that two checkouts of Proximo train the same weights, bit for bit.

    python tools/same_weights.py OLD NEW [--fast] [--only WORD ...] [--skip WORD ...] [--jobs 1] [--keep DIR]

OLD and NEW are git revisions or folders (`.`: the working tree as it is now). Every case of same_weights_cases.py is
run in both, and gone on with from its second checkpoint; the table says whether weights, checkpoints and metrics are
the same. Exit code 1: something differs, or fails on one side only. What a revision OLD gave is kept in the user's
cache; `same_weights.py HEAD HEAD --no-cache` shows whether the runs are deterministic at all.
"""

import argparse
import contextlib
import hashlib
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

from same_weights_cases import CASES, FAST, Case
from same_weights_runs import STOPPED, ForeignCodeError, Group, Side, end_all, play

TOOLS = Path(__file__).resolve().parent
HEADER = ("case", "weights", "checkpoint", "metrics", "resumed", "= fresh", "old s", "new s")
PARTS = ("weights", "checkpoint", "metrics")
Result = dict[str, Any]  # see play()
Results = dict[str, Result]  # by the name of the case


class Row(NamedTuple):
    """One line of the table; `bad` where the exit code has to be 1."""

    cells: tuple[str, ...]
    bad: bool


def main() -> int:
    """Compare two checkouts as the command line says; return the exit code."""
    args = parse_arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("same_weights: ended by SIGTERM"))
    cases = [case for case in CASES if (case.name in FAST or not args.fast)
             and (not args.only or any(word in case.name for word in args.only))
             and not any(word in case.name for word in args.skip)]
    began = time.monotonic()
    with contextlib.ExitStack() as stack:
        stack.callback(end_all)
        work = Path(args.keep).resolve() if args.keep else Path(stack.enter_context(tempfile.TemporaryDirectory()))
        sides = [stack.enter_context(checkout(given, work / label)) for label, given in zip(("old", "new"), args.sides)]
        cache = None if args.no_cache else cache_file(args.sides[0])
        new: Results = {}
        old = known(cache, cases)
        stack.callback(lambda: write_cache(cache, old))
        wanted = [[case for case in cases if case.name not in old], cases]
        run_all(sides, wanted, [old, new], args.jobs, bool(args.keep))
    rows = [compare(case.name, old[case.name], new[case.name]) for case in cases]
    print(table(rows, time.monotonic() - began))
    return exit_code(rows)


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sides", nargs=2, metavar="CHECKOUT", help="OLD and NEW: revisions or folders")
    parser.add_argument("--jobs", type=int, default=1, help="groups of cases that run at the same time")
    parser.add_argument("--only", nargs="+", default=[], metavar="WORD", help="cases with one of these in their names")
    parser.add_argument("--skip", nargs="+", default=[], metavar="WORD", help="not cases with one of these")
    parser.add_argument("--fast", action="store_true", help="the core of both frameworks, within about 90 seconds")
    parser.add_argument("--keep", metavar="DIR", help="leave the runs and what they printed in this new folder")
    parser.add_argument("--no-cache", action="store_true", help="run OLD although its digests are known")
    args = parser.parse_args()
    if args.keep and Path(args.keep).exists():
        parser.error(f"{args.keep} is there already; name a new folder")
    return args


@contextlib.contextmanager
def checkout(given: str, work: Path) -> Iterator[Side]:
    """Lay out a revision as a worktree, or the package of a folder as a copy that nobody edits meanwhile."""
    work.mkdir(parents=True)
    root = work / "checkout"
    if Path(given).is_dir():
        if not Path(given, "proximo", "__init__.py").is_file():
            raise SystemExit(f"{given} holds no package proximo")
        shutil.copytree(Path(given, "proximo"), root / "proximo", ignore=shutil.ignore_patterns("__pycache__"))
        yield Side(f"{work.name} ({given})", root, work)
        return
    git("worktree", "add", "--detach", str(root), commit_of(given))
    try:
        yield Side(f"{work.name} ({given})", root, work)
    finally:
        git("worktree", "remove", "--force", str(root))


def git(*words: str) -> str:
    """Run git in the repository of this file and return what it prints; SystemExit where it fails."""
    done = subprocess.run(["git", "-C", str(TOOLS), *words], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"git {' '.join(words)}: {done.stderr.strip()}")
    return done.stdout.strip()


def commit_of(revision: str) -> str:
    """Return the full name of a commit."""
    return git("rev-parse", "--verify", f"{revision}^{{commit}}")


def run_all(sides: list[Side], wanted: list[list[Case]], results: list[Results], jobs: int, keep: bool) -> None:
    """Fill in the results of the cases wanted of each side, `jobs` groups of processes at a time."""
    places = dict.fromkeys(case.place for cases in wanted for case in cases)
    with ThreadPoolExecutor(jobs) as pool:
        work: list[Future[None]] = []
        try:
            for place in places:
                for side, cases, found in zip(sides, wanted, results):
                    mine = [case for case in cases if case.place == place]
                    work.append(pool.submit(run_group, side, place, mine, found, keep))
            for future in work:
                future.result()
        except BaseException:
            for future in work:
                future.cancel()
            end_all()
            raise


def run_group(side: Side, place: str, cases: list[Case], found: Results, keep: bool) -> None:
    """Run the cases of one place in the same processes, and say how long each took."""
    group = Group(side, place)
    try:
        for case in cases:
            if STOPPED.is_set():
                return
            found[case.name] = result = play(case, group)
            state = "" if result["code"] == 0 else f"  code {result['code']}"
            print(f"{side.label:20} {case.name:52}{result['seconds']:7.1f} s{state}", file=sys.stderr, flush=True)
            if not keep:
                shutil.rmtree(side.work / "runs" / case.name, ignore_errors=True)
    finally:
        group.close()


def cache_file(given: str) -> Path | None:
    """Return where the digests of a revision are kept: by commit, way to run, installed libraries and processor."""
    if Path(given).is_dir():
        return None
    parts = [(TOOLS / f"same_weights_{name}.py").read_text() for name in ("digests", "envs", "runs", "worker")]
    parts += sorted(f"{each.name} {each.version}" for each in metadata.distributions() if each.name != "proximo")
    cpu = Path("/proc/cpuinfo")
    flags = [line for line in cpu.read_text().splitlines() if line.startswith("flags")] if cpu.exists() else []
    parts += [sys.version, platform.machine(), *flags[:1]]
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "proximo-same-weights"
    return base / f"{commit_of(given)}-{hashlib.sha256(chr(10).join(parts).encode()).hexdigest()[:16]}.json"


def known(path: Path | None, cases: list[Case]) -> Results:
    """Return what is kept of those cases, as far as their command lines are still the same."""
    kept = json.loads(path.read_text()) if path and path.is_file() else {}
    return {case.name: kept[case.name] for case in cases
            if case.name in kept and kept[case.name]["words"] == case.words("")}


def write_cache(path: Path | None, results: Results) -> None:
    """Keep results beside what is kept already, but for what was ended by a signal or took too long."""
    if path:
        path.parent.mkdir(parents=True, exist_ok=True)
        kept = json.loads(path.read_text()) if path.is_file() else {}
        kept |= {name: result for name, result in results.items() if result["code"] in range(128)}
        beside = path.with_suffix(f".{os.getpid()}.tmp")
        beside.write_text(json.dumps(kept))
        beside.replace(path)


def compare(name: str, old: Result, new: Result) -> Row:
    """Put what one case gave on both sides into a line of the table."""
    times = (f"{old['seconds']:.1f}", f"{new['seconds']:.1f}")
    if old["code"] == new["code"] == 0:
        fresh = [agreement(old["fresh"][part], new["fresh"][part]) for part in PARTS]
        if new["resumed"] is None:
            return Row((name, *fresh, "-", "-", *times), fresh != ["same"] * 3)
        resumed = [agreement(old["resumed"][part], new["resumed"][part]) for part in PARTS]
        worst = next((word for word in ("DIFFERS", "renamed") if word in resumed), "same")
        exact = "yes" if new["fresh"]["weights"] == new["resumed"]["weights"] else "no"
        return Row((name, *fresh, worst, exact, *times), {*fresh, *resumed} != {"same"})
    if old["code"] == new["code"] is not None and old["said"] == new["said"]:
        return Row((name, "both refuse", f"({old['code']}) {old['said'].rpartition(' / ')[2]}"), False)
    said = "; ".join(f"{side} {'works' if result['code'] == 0 else result['said']}"
                     for side, result in (("OLD", old), ("NEW", new)))
    return Row((name, "FAILS", said), True)


def agreement(old: list[str], new: list[str]) -> str:
    """Compare two digests: `renamed` means that names differ and values are equal."""
    if old == new:
        return "same"
    return "renamed" if old[1:] and old[1:] == new[1:] else "DIFFERS"


def table(rows: list[Row], seconds: float) -> str:
    """Align the rows, with a line below that counts them."""
    whole = [row.cells for row in rows if len(row.cells) == len(HEADER)]
    widths = [max(len(cell) for cell in column) for column in zip(HEADER, *whole)]
    widths[0] = max([widths[0], *(len(row.cells[0]) for row in rows)])
    lines = [aligned(cells, widths) for cells in (HEADER, *(row.cells for row in rows))]
    refused, bad = sum(row.cells[1] == "both refuse" for row in rows), sum(row.bad for row in rows)
    lines.append(f"\n{len(rows)} cases: {len(rows) - refused - bad} same, {refused} refused on both sides, {bad} bad; "
                 f"{seconds:.0f} seconds")
    if any("renamed" in row.cells for row in rows):
        lines.append("renamed: names differ, values equal")
    return "\n".join(lines)


def aligned(cells: tuple[str, ...], widths: list[int]) -> str:
    """Pad the cells of a line; where a case failed, only its name."""
    if len(cells) < len(HEADER):
        widths = widths[:1] + [0] * len(cells)
    return "  ".join(cell.ljust(width) for cell, width in zip(cells, widths)).rstrip()


def exit_code(rows: list[Row]) -> int:
    """Return 0 where all that was compared is the same, else 1; also where nothing was compared."""
    return int(not rows or any(row.bad for row in rows))


if __name__ == "__main__":
    try:
        sys.exit(main())
    except ForeignCodeError as error:
        sys.exit(f"same_weights: {error}")
    except KeyboardInterrupt:
        sys.exit(130)
