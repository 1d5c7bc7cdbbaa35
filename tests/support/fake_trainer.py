"""A trainer that learns nothing in no time: it writes the run folder that the real one writes, and can be killed.

FAKE_SECONDS: how long a run takes; FAKE_FAIL: the seed whose run fails; FAKE_CODE: its exit code; FAKE_KILL: SEED@PART, the seed whose
run is killed by SIGKILL in that part, if it began before it; with part 0 every time, before its first checkpoint.
"""

import csv
import json
import os
import signal
import sys
import time
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import asdict, fields
from pathlib import Path

from proximo.bench.task import Ended
from proximo.config import Config
from proximo.runs.folder.lock import locked
from proximo.variants import Atari

FAKE = (sys.executable, str(Path(__file__)))  # in place of `python -m proximo`
KINDS = {"ppo": Config, "ppo_atari": Atari}
PARTS = 20
EPISODES = 10  # of each part


def parsed(words):
    """Convert --a-b 1 --no-c --d to {"a_b": "1", "c": False, "d": True}."""
    flags, i = {}, 0
    while i < len(words):
        name = words[i].removeprefix("--").replace("-", "_")
        if i + 1 < len(words) and not words[i + 1].startswith("--"):
            flags[name], i = words[i + 1], i + 2
        else:
            flags[name.removeprefix("no_")], i = not name.startswith("no_"), i + 1
    return flags


def configured(variant, flags):
    known = {f.name: f for f in fields(KINDS[variant])}
    values = {}
    for name, value in flags.items():
        default = known[name].default
        values[name] = type(default)(value) if isinstance(default, (int, float)) and isinstance(value, str) else value
    return KINDS[variant](**values)


def train(run_dir):
    content = json.loads((run_dir / "config.json").read_text())
    cfg = content["config"]
    steps, seed = cfg["total_timesteps"], cfg["seed"]
    checkpoints = run_dir / "checkpoints"
    checkpoints.mkdir(exist_ok=True)
    begun = max((int(path.name) for path in checkpoints.iterdir()), default=0)
    for name, per_part in (("metrics.csv", 1), ("episodes.csv", EPISODES)):  # without a part that was not finished
        if (run_dir / name).exists():
            lines = (run_dir / name).read_text().splitlines(keepends=True)
            (run_dir / name).write_text("".join(lines[:1 + begun * per_part]) if begun else "")
    import numpy as np  # here, so that an evaluation begins at once
    rng = np.random.default_rng(seed)
    reward = 100 * rng.random() - 50 * (cfg["anneal_lr"] == "none")
    for part in range(begun, PARTS):
        step = steps * (part + 1) // PARTS
        with (run_dir / "metrics.csv").open("a") as file:
            if part == 0:
                file.write("iteration,global_step,seconds,charts/episodic_return\n")
            file.write(f"{part + 1},{step},{step / 1000},{reward * step / steps}\n")
        with (run_dir / "episodes.csv").open("a") as file:
            if part == 0:
                file.write("step,row,return,length,seconds\n")
            for k in range(EPISODES if cfg["env_id"] != "Endless-v0" else 0):
                file.write(f"{step - 10 + k},0,{reward * step / steps + k},{50 + k},{step / 1000}\n")
        if os.environ.get("FAKE_KILL") == f"{seed}@{part}" and (begun < part or part == 0):
            os.kill(os.getpid(), signal.SIGKILL)
        (checkpoints / f"{part + 1:08d}").mkdir()
        time.sleep(float(os.environ.get("FAKE_SECONDS", "0")) / PARTS)
        if os.environ.get("FAKE_FAIL") == str(seed):
            print("first line\nproximo: the loss is not finite at iteration 1", file=sys.stderr)
            sys.exit(int(os.environ.get("FAKE_CODE", "4")))
    episodes = list(csv.DictReader((run_dir / "episodes.csv").read_text().splitlines()))[-100:]
    returns, lengths = [[float(e[name]) for e in episodes] for name in ("return", "length")]
    summary = {"variant": content["variant"], "env_id": cfg["env_id"], "seed": seed, "framework": cfg["framework"],
               "steps": steps, "episodes": len(episodes), "sps": 1000.0, "compile_seconds": 0.0,
               "wall_seconds": steps / 1000}
    for name, values in (("return", returns), ("length", lengths)):
        summary[f"episodic_{name}_mean"] = float(np.mean(values)) if values else None
        summary[f"episodic_{name}_std"] = float(np.std(values)) if values else None
    (run_dir / "summary.json").write_text(json.dumps(summary))


def main(what, *words):
    if what == "train":
        flags = parsed(words[1:])
        assert flags.pop("resume") == "auto"
        cfg = configured(words[0], flags)
        run_dir = Path(cfg.run_dir)
        run_dir.mkdir(parents=True, exist_ok=True)
        (run_dir / "config.json").write_text(json.dumps({
            "variant": words[0], "config": asdict(cfg), "versions": {"proximo": "0.0", "numpy": "2.4"},
            "command": " ".join(words)}))
        with locked(run_dir):
            train(run_dir)
    else:
        flags = parsed(words[1:])
        returns = [float(json.loads((Path(words[0]) / "summary.json").read_text())["episodic_return_mean"] or 0)] * 3
        Path(flags["json"]).write_text(json.dumps({
            "episodic_return_mean": returns[0], "episodic_return_std": 0.0, "episodes": 3, "returns": returns,
            "deterministic": flags["deterministic"]}))


class FakePlace:
    """A place of a benchmark that runs every task in this process, for tests of what comes after the runs."""

    def submit(self, tasks):
        return [FakeHandle(task) for task in tasks]

    def recover(self, name):
        return None

    def close(self):
        pass


class FakeHandle:
    """A task that has ended."""

    name = "this process"

    def __init__(self, task):
        self.code = 0
        with open(task.log, "a") as log, redirect_stdout(log), redirect_stderr(log):
            try:
                main(*task.words[len(FAKE):])
            except SystemExit as end:
                self.code = end.code

    def poll(self):
        return Ended(self.code)


if __name__ == "__main__":
    main(*sys.argv[1:])
