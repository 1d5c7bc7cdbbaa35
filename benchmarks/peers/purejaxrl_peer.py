"""PureJaxRL, whose whole training is one compiled function: `purejaxrl_peer.py SETTINGS CHECKOUT`."""

import json
import sys
import time
import types

import jax

settings, source = json.loads(sys.argv[1]), sys.argv[2]
sys.modules["navix"] = types.ModuleType("navix")  # its wrappers import it; CartPole does not need it
sys.path.insert(0, f"{source}/purejaxrl")
import ppo  # noqa: E402

config = {"LR": settings["learning_rate"], "NUM_ENVS": settings["envs"], "NUM_STEPS": settings["steps"],
          "TOTAL_TIMESTEPS": settings["total"], "UPDATE_EPOCHS": settings["epochs"], "GAMMA": settings["gamma"],
          "NUM_MINIBATCHES": settings["minibatches"], "GAE_LAMBDA": settings["gae_lambda"],
          "CLIP_EPS": settings["clip"],
          "ENT_COEF": settings["entropy"], "VF_COEF": settings["value"], "MAX_GRAD_NORM": settings["max_grad_norm"],
          "ACTIVATION": "tanh", "ENV_NAME": "CartPole-v1", "ANNEAL_LR": True, "DEBUG": False}
seeds = settings["seeds"]
train = ppo.make_train(config)
train = jax.jit(jax.vmap(train) if seeds > 1 else train)
times = []
for first in (0, seeds):
    keys = jax.vmap(jax.random.PRNGKey)(jax.numpy.arange(first, first + seeds))
    began = time.perf_counter()
    jax.block_until_ready(train(keys if seeds > 1 else keys[0]))
    times.append(time.perf_counter() - began)
steps = seeds * int(config["NUM_UPDATES"]) * settings["envs"] * settings["steps"]
print(json.dumps({"rate": steps / times[1], "start": times[0] - times[1], "differs": "nothing logged or saved"}))
