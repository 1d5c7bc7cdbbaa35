"""PufferLib 3 with its CartPole in C: `pufferlib_peer.py SETTINGS CHECKOUT`.

CHECKOUT is the source distribution with `pufferlib._C` and `pufferlib.ocean.cartpole.binding` built in place.
"""

import contextlib
import io
import json
import os
import shutil
import sys
import tempfile
import time
import types

settings, source = json.loads(sys.argv[1]), sys.argv[2]
sys.path.insert(0, source)
folder = tempfile.mkdtemp()
os.chdir(folder)  # PufferLib puts a link there when it is imported
for name, content in {"pyro": (), "pyro.contrib": (), "pyro.contrib.gp": (), "pyro.contrib.gp.kernels": ("Kernel",),
                      "pyro.contrib.gp.models": ("GPRegression",)}.items():  # its hyper-parameter search needs them
    sys.modules[name] = types.ModuleType(name)
    for one in content:
        setattr(sys.modules[name], one, type(one, (), {}))

import pufferlib.pytorch  # noqa: E402
import torch  # noqa: E402
from pufferlib.ocean.cartpole.cartpole import Cartpole  # noqa: E402
from pufferlib.pufferl import PuffeRL  # noqa: E402
from torch import nn  # noqa: E402

torch.set_num_threads(1)


def tower(out: int, gain: float) -> nn.Sequential:
    """Return a network of 64 x 64 units, initialised as in PPO."""
    init = pufferlib.pytorch.layer_init
    return nn.Sequential(init(nn.Linear(4, 64)), nn.Tanh(), init(nn.Linear(64, 64)), nn.Tanh(),
                         init(nn.Linear(64, out), std=gain))


class Policy(nn.Module):
    """Separate networks for policy and value function."""

    def __init__(self) -> None:
        super().__init__()
        self.actor, self.critic = tower(2, 0.01), tower(1, 1.0)

    def forward(self, observations: torch.Tensor, state: object = None) -> tuple[torch.Tensor, torch.Tensor]:
        """Return logits and values."""
        return self.actor(observations), self.critic(observations)

    forward_eval = forward


batch = settings["envs"] * settings["steps"]
with contextlib.redirect_stdout(io.StringIO()):
    config = {"name": "peer", "project": "peer", "env": "cartpole", "data_dir": folder, "seed": 1,
              "torch_deterministic": True, "cpu_offload": False, "device": "cpu", "optimizer": "adam",
              "anneal_lr": True, "precision": "float32", "total_timesteps": settings["total"],
              "learning_rate": settings["learning_rate"], "gamma": settings["gamma"],
              "gae_lambda": settings["gae_lambda"], "update_epochs": settings["epochs"],
              "clip_coef": settings["clip"], "vf_coef": settings["value"], "vf_clip_coef": settings["clip"],
              "max_grad_norm": settings["max_grad_norm"], "ent_coef": settings["entropy"], "adam_beta1": 0.9,
              "adam_beta2": 0.999, "adam_eps": 1e-5, "checkpoint_interval": 10**9, "batch_size": batch,
              "minibatch_size": batch // settings["minibatches"], "max_minibatch_size": batch,
              "bptt_horizon": settings["steps"], "compile": False, "compile_mode": "default",
              "compile_fullgraph": True, "vtrace_rho_clip": 1.0, "vtrace_c_clip": 1.0, "prio_alpha": 0.0,
              "prio_beta0": 1.0, "use_rnn": False}
    start = time.perf_counter()
    trainer = PuffeRL(config, Cartpole(num_envs=settings["envs"]), Policy())
    began = 0.0
    while trainer.global_step < settings["total"]:
        trainer.evaluate()
        trainer.train()
        if not began and trainer.global_step >= 2 * batch:
            began, first_steps = time.perf_counter(), trainer.global_step
    rate = (trainer.global_step - first_steps) / (time.perf_counter() - began)
print(json.dumps({"rate": rate, "start": began - start,
                  "differs": "episodes of 200 steps; minibatches of whole environments, drawn with replacement; "
                             "advantages computed again for every minibatch; writes nothing"}), flush=True)
shutil.rmtree(folder)
os._exit(0)  # a thread of PufferLib, which measures the load of the machine, does not end
