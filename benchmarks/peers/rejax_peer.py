"""Rejax, whose whole training is one compiled function: `rejax_peer.py SETTINGS`."""

import json
import sys
import time

import jax
import rejax

settings = json.loads(sys.argv[1])
algorithm = rejax.PPO.create(
    env="CartPole-v1", num_envs=settings["envs"], num_steps=settings["steps"], num_epochs=settings["epochs"],
    num_minibatches=settings["minibatches"], total_timesteps=settings["total"], learning_rate=settings["learning_rate"],
    gamma=settings["gamma"], gae_lambda=settings["gae_lambda"], clip_eps=settings["clip"], ent_coef=settings["entropy"],
    vf_coef=settings["value"], max_grad_norm=settings["max_grad_norm"], eval_freq=settings["total"],
    agent_kwargs={"activation": "tanh", "hidden_layer_sizes": (64, 64)})
seeds = settings["seeds"]
train = algorithm.replace(eval_callback=lambda *_: ()).train
train = jax.jit(jax.vmap(train) if seeds > 1 else train)
times = []
for first in (0, seeds):
    keys = jax.vmap(jax.random.key)(jax.numpy.arange(first, first + seeds))
    began = time.perf_counter()
    jax.block_until_ready(train(keys if seeds > 1 else keys[0]))
    times.append(time.perf_counter() - began)
batch = settings["envs"] * settings["steps"]
print(json.dumps({"rate": seeds * -(-settings["total"] // batch) * batch / times[1], "start": times[0] - times[1],
                  "differs": "nothing logged or saved; learning rate not annealed"}))
