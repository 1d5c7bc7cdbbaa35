"""Compare the compilers of --compile on this CPU: CartPole-v1, 4 x 128, one thread, all in one process.

    python benchmarks/compilers.py --rounds 5

"first" is the first iteration, with set-up and compilation, with an empty cache: seconds of the clock, and of all cores
with the compilers that they start. Afterwards the ways take turns of 20 iterations. SPS are those of processor time,
which other programs disturb less than the clock; medians over the rounds.
"""

import argparse
import itertools
import os
import resource
import statistics
import tempfile
import time
from collections.abc import Iterator
from typing import Any

from proximo.config import Config
from proximo.envs.gym import make_gym
from proximo.on_torch.assemble import assemble
from proximo.on_torch.train import train

TURN = 20
WAYS = {"eager": {}, "aot": {"compile": True, "compile_with": "aot"},
        "inductor": {"compile": True, "compile_with": "inductor"}}


def seconds_of_cores() -> float:
    """Return the processor time of this process and of its children that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def play(iterations: Iterator[Any], count: int) -> tuple[float, float]:
    """Train for some iterations. Returns seconds of the clock and of all cores."""
    began, before = time.perf_counter(), seconds_of_cores()
    for _ in itertools.islice(iterations, count):
        pass
    return time.perf_counter() - began, seconds_of_cores() - before


def main() -> None:
    """Print one row for each way."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as caches:
        os.environ |= {"XDG_CACHE_HOME": caches, "TORCHINDUCTOR_CACHE_DIR": f"{caches}/inductor"}
        runs = {name: iter(train(Config(threads=1, total_timesteps=10**9, **fields), make_gym, assemble))
                for name, fields in WAYS.items()}
        first = {name: play(run, 1) for name, run in runs.items()}
        rounds = [{name: TURN * 512 / play(run, TURN)[1] for name, run in runs.items()} for _ in range(args.rounds)]
    print("| way | first s | of all cores | SPS of processor time | x eager |\n|---|---|---|---|---|")
    middle = {name: statistics.median(one[name] for one in rounds) for name in WAYS}
    for name, sps in middle.items():
        clock, cores = first[name]
        print(f"| {name} | {clock:.0f} | {cores:.0f} | {sps:,.0f} | {sps / middle['eager']:.2f} |")


if __name__ == "__main__":
    main()
