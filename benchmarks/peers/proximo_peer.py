"""Proximo's command: `proximo_peer.py SETTINGS WAY`; WAY is a key of `words` (two: processes)."""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

TASKS = {"CartPole-v1": ["ppo", "--env-id", "CartPole-v1"],
         "HalfCheetah-v4": ["ppo_continuous_action", "--env-id", "HalfCheetah-v4"],
         "Breakout": ["ppo_atari", "--env-id", "BreakoutNoFrameskip-v4"]}
settings, way = json.loads(sys.argv[1]), sys.argv[2]
words = {"jax": ["--framework", "jax"], "compile": ["--compile"], "eager": [], "bf16": ["--precision", "bf16"],
         "envpool": ["--compile", "--engine", "envpool"], "two": [], "two-bf16": ["--precision", "bf16"],
         "envpool-inductor": ["--compile", "--compile-with", "inductor", "--engine", "envpool"]}[way]
two = way.startswith("two")
start = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2"] if two else []
flags = {"total-timesteps": "total", "num-envs": "envs", "num-steps": "steps", "update-epochs": "epochs",
         "gamma": "gamma", "num-minibatches": "minibatches", "learning-rate": "learning_rate",
         "gae-lambda": "gae_lambda", "clip-coef": "clip", "ent-coef": "entropy", "vf-coef": "value",
         "max-grad-norm": "max_grad_norm"}
values = [word for flag, name in flags.items() for word in (f"--{flag}", str(settings[name]))]
with tempfile.TemporaryDirectory() as folder:
    run = f"{folder}/run"
    seeds = ["--num-seeds", str(settings["seeds"])] * (settings["seeds"] > 1)
    on_cpu = ["--threads", str(1 if two else settings["cores"])] * (settings["device"] == "cpu")
    words = [*TASKS[settings["env"]], *words, *on_cpu, *values, *seeds, "--device", settings["device"],
             "--run-dir", run]
    subprocess.run([sys.executable, *start, "-m", "proximo", "train", *words], check=True)
    summaries = [json.loads(path.read_text()) for path in Path(run).rglob("summary.json")]
print(json.dumps({"rate": sum(one["sps"] for one in summaries), "start": summaries[0]["compile_seconds"],
                  "differs": "writes CSV, TensorBoard and checkpoints"}))
