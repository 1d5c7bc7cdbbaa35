"""CleanRL's scripts, run as they are: `cleanrl_peer.py SETTINGS CHECKOUT`."""

import json
import subprocess
import sys
import tempfile
import time

SCRIPTS = {"CartPole-v1": ("ppo.py", "CartPole-v1"), "HalfCheetah-v4": ("ppo_continuous_action.py", "HalfCheetah-v4"),
           "Breakout": ("ppo_atari.py", "BreakoutNoFrameskip-v4")}
settings, source = json.loads(sys.argv[1]), sys.argv[2]
script, env_id = SCRIPTS[settings["env"]]
flags = {"total-timesteps": "total", "num-envs": "envs", "num-steps": "steps", "update-epochs": "epochs",
         "gamma": "gamma", "num-minibatches": "minibatches", "learning-rate": "learning_rate",
         "gae-lambda": "gae_lambda", "clip-coef": "clip", "ent-coef": "entropy", "vf-coef": "value",
         "max-grad-norm": "max_grad_norm"}
words = [word for flag, name in flags.items() for word in (f"--{flag}", str(settings[name]))]
began = time.perf_counter()
with tempfile.TemporaryDirectory() as folder:
    command = [sys.executable, f"{source}/cleanrl/{script}", "--env-id", env_id, *words,
               *["--no-cuda"] * (settings["device"] == "cpu")]
    process = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True)
    ends = [time.perf_counter() for line in process.stdout or () if line.startswith("SPS:")]  # of the iterations
    process.wait()
assert process.returncode == 0
steps = (len(ends) - 2) * settings["envs"] * settings["steps"]
print(json.dumps({"rate": steps / (ends[-1] - ends[1]), "start": ends[1] - began, "differs": "writes TensorBoard"}))
