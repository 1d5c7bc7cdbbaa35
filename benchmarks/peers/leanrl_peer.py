"""LeanRL's compiled scripts: `leanrl_peer.py SETTINGS CHECKOUT`.

They were written for gymnasium 0.29, gym 0.23 and the EnvPool and tensordict of 2024. The lines that newer versions of
EnvPool and tensordict do not accept are replaced (REPLACED), and `wandb` is replaced by a clock.
"""

import json
import sys
import time
import types

settings, source = json.loads(sys.argv[1]), sys.argv[2]
REPLACED = {
    # tensordict makes parameters that require gradients of the data of parameters
    "    policy = agent_inference": "    agent_inference.requires_grad_(False)\n    policy = agent_inference",
    # EnvPool has these attributes itself, and returns terminated and truncated apart
    "    envs.num_envs = args.num_envs\n": "",
    "    envs.single_action_space = envs.action_space\n": "",
    "    envs.single_observation_space = envs.observation_space\n": "",
    "class RecordEpisodeStatistics(gym.Wrapper):": "class RecordEpisodeStatistics:",
    "        super().__init__(env)\n        self.num_envs": "        self.env = env\n        self.num_envs",
    "observations = super().reset(**kwargs)": "observations = self.env.reset(**kwargs)[0]",
    "observations, rewards, dones, infos = super().step(action)":
        "observations, rewards, dones, cut, infos = self.env.step(action); dones = dones | cut",
    "assert isinstance(envs.action_space": "assert True or isinstance(envs.action_space",
    "    envs.close()": "    pass",
    "    envs = RecordEpisodeStatistics(envs)":
        "    action_space, observation_space = envs.action_space, envs.observation_space\n"
        "    envs = RecordEpisodeStatistics(envs)\n"
        "    envs.single_action_space, envs.single_observation_space = action_space, observation_space"}
atari = settings["env"] == "Breakout"
script = f"{source}/leanrl/ppo_{'atari_envpool' if atari else 'continuous_action'}_torchcompile.py"
seen: list[tuple[float, int]] = []
sys.modules["wandb"] = types.ModuleType("wandb")
sys.modules["wandb"].init = lambda **given: None
sys.modules["wandb"].log = lambda row, step: seen.append((time.perf_counter(), step))
sys.argv = [script, "--env-id", "Breakout-v5" if atari else settings["env"], "--compile",
            *["--cudagraphs"] * (settings["device"] == "cuda")]
for flag, name in {"total-timesteps": "total", "num-envs": "envs", "num-steps": "steps", "update-epochs": "epochs",
                   "gamma": "gamma", "num-minibatches": "minibatches", "learning-rate": "learning_rate",
                   "gae-lambda": "gae_lambda", "clip-coef": "clip", "ent-coef": "entropy", "vf-coef": "value",
                   "max-grad-norm": "max_grad_norm"}.items():
    sys.argv += [f"--{flag}", str(settings[name])]
start = time.perf_counter()
with open(script) as file:
    text = file.read()
for old, new in REPLACED.items():
    text = text.replace(old, new)
exec(compile(text, script, "exec"), {"__name__": "__main__", "__file__": script})
(began, first), (end, last) = seen[0], seen[-1]  # it logs every tenth iteration
print(json.dumps({"rate": (last - first) / (end - began), "start": began - start,
                  "differs": "time limits end the task; " + ("EnvPool" if atari else "normalises as CleanRL")}))
