"""Kill random processes of a benchmark on Ray every few seconds, and compare its results with an undisturbed one.

python tools/chaos.py --minutes 10 [--every 10] [--out DIR]

Eight runs are trained on this machine without Ray, then on a Ray cluster of two nodes, where training processes,
workers of Ray, whole nodes and the benchmark itself are killed by SIGKILL. The benchmark is started again by the same
command. In the end weights and logs of all runs have to be equal, bit for bit; the exit code is 1 if they are not.
"""

import argparse
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

from proximo.bench.files import read_record
from proximo.bench.records import Summary
from proximo.runs.folder.lock import holder
from tests.support.ray_cluster import ENVIRONMENT, RayCluster, ray_cluster
from tests.support.runs import same_logs, same_weights

SET = """
title = "chaos"
seeds = 8
[[run]]
variant = "ppo"
env_ids = ["CartPole-v1"]
steps = {steps}
label = "small"
overrides = {{num_envs = 4, num_steps = 64, hidden_sizes = [32, 32], checkpoint_every = 20, threads = 1}}
"""
VICTIMS = {"run": 5, "worker": 3, "node": 1, "benchmark": 1}  # how often each is chosen


class Bench:
    """The benchmark's process, which is started again when it was killed or has given up a run."""

    def __init__(self, words: list[str], log: Path) -> None:
        self.words, self.log, self.starts = words, log, 0
        self.start()

    def start(self) -> None:
        """Start the same command once more."""
        self.starts += 1
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(self.words, stdout=log, stderr=log, env=os.environ | ENVIRONMENT)

    def is_done(self) -> bool:
        """Return whether all runs have finished."""
        code = self.process.poll()
        if code is not None and code != 0:
            self.start()
        return code == 0


def main() -> int:
    """Run both benchmarks and print the comparison."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--minutes", type=float, default=10.0, help="how long processes are killed")
    parser.add_argument("--every", type=float, default=10.0, help="seconds between two kills")
    parser.add_argument("--steps", type=int, default=409_600, help="steps of each run")
    parser.add_argument("--out", type=Path, default=Path("runs") / "chaos")
    args = parser.parse_args()
    shutil.rmtree(args.out, ignore_errors=True)
    args.out.mkdir(parents=True)
    file = args.out / "chaos.toml"
    file.write_text(SET.format(steps=args.steps))
    still, disturbed = args.out / "still", args.out / "disturbed"
    words = [sys.executable, "-m", "proximo", "bench", str(file)]
    subprocess.run([*words, "--out", str(still), "--workers", "2"], check=True)
    with ray_cluster(2) as cluster:
        bench = Bench([*words, "--out", str(disturbed), "--on", "ray", "--address", cluster.address],
                      args.out / "disturbed.log")
        kills = disturb(bench, cluster, disturbed, args.minutes * 60, args.every)
    return compare(still, disturbed, kills, bench.starts)


def disturb(bench: Bench, cluster: RayCluster, out: Path, seconds: float, every: float) -> Counter[str]:
    """Kill until the time is over, then wait for the end; return what was killed how often."""
    draws, kills = random.Random(0), Counter[str]()
    begun = last = time.monotonic()
    while not bench.is_done():
        time.sleep(0.2)
        now = time.monotonic()
        if now - begun > seconds or now - last < every:
            continue
        kind = draws.choices(list(VICTIMS), list(VICTIMS.values()))[0]
        if kill(kind, bench, cluster, out, draws):
            kills[kind] += 1
            last = time.monotonic()
            print(f"{last - begun:6.1f} s: killed a {kind}", flush=True)
    print(f"ended after {time.monotonic() - begun:.0f} s")
    return kills


def kill(kind: str, bench: Bench, cluster: RayCluster, out: Path, draws: random.Random) -> bool:
    """Kill one process or node; return False if there is none of its kind now."""
    if kind == "benchmark":
        bench.process.kill()
        return True
    if kind == "node":
        cluster.tell("kill")
        cluster.tell("add")
        return True
    pids = [int(found[1]) for record in sorted(out.rglob("*.job.json"))
            if (found := re.match(r"process (\d+)", holder(record.with_name(record.name.removesuffix(".job.json")))))]
    living = [pid for pid in pids if b"train" in command_of(pid)]
    if not living:
        return False
    pid = draws.choice(living)
    os.kill(parent_of(pid) if kind == "worker" else pid, signal.SIGKILL)
    return True


def command_of(pid: int) -> list[bytes]:
    """Return the words of a process; [] if it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return []


def parent_of(pid: int) -> int:
    """Return the process that started another one."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def compare(still: Path, disturbed: Path, kills: Counter[str], starts: int) -> int:
    """Print both scores of every run and whether everything is equal; return the exit code."""
    different = 0
    print(f"{'run':>4}  {'undisturbed':>12}  {'disturbed':>12}  equal")
    for folder in sorted(path.parent.relative_to(still) for path in still.rglob("summary.json")):
        one, other = still / folder, disturbed / folder
        scores = [read_record(place / "summary.json", Summary).get("episodic_return_mean") for place in (one, other)]
        equal = None not in scores and same_weights(one, other) and same_logs(one, other) and scores[0] == scores[1]
        different += not equal
        print(f"{folder.name:>4}  {scores[0]!s:>12.12}  {scores[1]!s:>12.12}  {'yes' if equal else 'NO'}")
    counts = ", ".join(f"{count} x {kind}" for kind, count in sorted(kills.items()))
    print(f"killed: {counts}; the command was started {starts} times; {different} runs differ")
    (disturbed.parent / "chaos.json").write_text(json.dumps({"kills": kills, "starts": starts, "different": different}))
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
