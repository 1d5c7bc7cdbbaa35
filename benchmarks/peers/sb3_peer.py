"""Stable-Baselines3: `sb3_peer.py SETTINGS`. The same script measures SBX, which has the same interface."""

import json
import sys
import time

from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_atari_env, make_vec_env
from stable_baselines3.common.vec_env import VecFrameStack, VecNormalize

settings, jax = json.loads(sys.argv[1]), sys.argv[0].endswith("sbx_peer.py")
if jax:
    from sbx import PPO
else:
    import torch
    from stable_baselines3 import PPO

    torch.set_num_threads(settings["cores"])
if settings["env"] == "Breakout":
    import ale_py
    import gymnasium

    gymnasium.register_envs(ale_py)
    envs = VecFrameStack(make_atari_env("BreakoutNoFrameskip-v4", settings["envs"]), 4)
else:
    envs = make_vec_env(settings["env"], settings["envs"])
    envs = VecNormalize(envs) if settings["env"] == "HalfCheetah-v4" else envs
batch = settings["envs"] * settings["steps"]
model = PPO("CnnPolicy" if settings["env"] == "Breakout" else "MlpPolicy", envs, n_steps=settings["steps"],
            batch_size=batch // settings["minibatches"], n_epochs=settings["epochs"], gamma=settings["gamma"],
            learning_rate=settings["learning_rate"], gae_lambda=settings["gae_lambda"], clip_range=settings["clip"],
            ent_coef=settings["entropy"], vf_coef=settings["value"], max_grad_norm=settings["max_grad_norm"],
            **({} if jax else {"device": settings["device"]}))


class Clock(BaseCallback):
    """Notes the time after the second iteration, when everything is compiled."""

    began, first_steps = 0.0, 0

    def _on_rollout_start(self) -> None:
        if not self.began and self.num_timesteps >= 2 * batch:
            self.began, self.first_steps = time.perf_counter(), self.num_timesteps

    def _on_step(self) -> bool:
        return True


start, clock = time.perf_counter(), Clock()
model.learn(settings["total"], callback=clock)
print(json.dumps({"rate": (model.num_timesteps - clock.first_steps) / (time.perf_counter() - clock.began),
                  "start": clock.began - start, "differs": "learning rate not annealed; value loss not clipped"}))
