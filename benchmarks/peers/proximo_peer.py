"""Proximo's command: `proximo_peer.py SETTINGS jax|compile|eager`."""

import json
import sys
import tempfile
from pathlib import Path

from proximo.cli.main import main

settings, way = json.loads(sys.argv[1]), sys.argv[2]
words = {"jax": ["--framework", "jax"], "compile": ["--compile"], "eager": []}[way]
flags = {"total-timesteps": "total", "num-envs": "envs", "num-steps": "steps", "update-epochs": "epochs",
         "gamma": "gamma", "num-minibatches": "minibatches", "learning-rate": "learning_rate",
         "gae-lambda": "gae_lambda", "clip-coef": "clip", "ent-coef": "entropy", "vf-coef": "value",
         "max-grad-norm": "max_grad_norm"}
values = [word for flag, name in flags.items() for word in (f"--{flag}", str(settings[name]))]
with tempfile.TemporaryDirectory() as folder:
    run = f"{folder}/run"
    seeds = ["--num-seeds", str(settings["seeds"])] * (settings["seeds"] > 1)
    words += ["--env-id", "CartPole-v1", "--threads", "1", *values, *seeds, "--run-dir", run]
    code = main(["train", "ppo", *words])
    assert code == 0
    summaries = [json.loads(path.read_text()) for path in Path(run).rglob("summary.json")]
print(json.dumps({"rate": sum(one["sps"] for one in summaries), "start": summaries[0]["compile_seconds"],
                  "differs": "writes CSV, TensorBoard and checkpoints"}))
