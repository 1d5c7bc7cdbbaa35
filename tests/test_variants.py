"""Every variant with its real engine, from the command line: two small iterations, the files that they wrote, and a
model that acts."""

import csv
import importlib.util
import json
import math

import numpy as np
import pytest
import torch

import proximo
from proximo.cli.main import main
from proximo.types import RolloutBuffer

SUMMARY = {"variant", "env_id", "seed", "framework", "steps", "episodes", "episodic_return_mean", "episodic_return_std",
           "episodic_length_mean", "episodic_length_std", "sps", "compile_seconds", "wall_seconds"}
IMAGES = "--num-envs 2 --num-steps 8 --total-timesteps 32 --num-minibatches 2 --update-epochs 1"
FLAT = "--num-envs 2 --num-steps 32 --total-timesteps 128 --num-minibatches 2 --update-epochs 2"
BRAX = "--num-envs 8 --num-steps 4 --total-timesteps 64"

# variant, flags, sizes, packages of the engine
RUNS = [
    ("ppo_atari", "--env-id BreakoutNoFrameskip-v4", IMAGES, ["ale_py"]),
    ("ppo_atari", "--env-id ALE/Breakout-v5", IMAGES, ["ale_py"]),
    ("ppo_atari_multigpu", "--env-id BreakoutNoFrameskip-v4 --local-num-envs 2", IMAGES, ["ale_py"]),
    ("ppo_atari_lstm", "--env-id BreakoutNoFrameskip-v4", IMAGES, ["ale_py"]),
    ("ppo_atari_envpool", "--env-id Breakout-v5", IMAGES, ["envpool"]),
    ("ppo_continuous_action", "--env-id HalfCheetah-v4", FLAT, ["mujoco"]),
    ("ppo_continuous_action", "--env-id dm_control/cartpole-balance-v0", FLAT, ["dm_control", "shimmy"]),
    ("ppo_continuous_action", "--env-id HalfCheetah-v4 --engine envpool", FLAT, ["envpool"]),
    ("ppo_continuous_action", "--env-id Pendulum-v1 --recurrent gru", FLAT, []),
    ("rpo_continuous_action", "--env-id HalfCheetah-v4", FLAT, ["mujoco"]),
    ("ppo_procgen", "--env-id starpilot --distribution-mode easy --num-levels 2", IMAGES, ["envpool", "PyQt5"]),
    ("ppo_pettingzoo_ma_atari", "--env-id pong_v3", IMAGES, ["pettingzoo", "multi_agent_ale_py"]),
    ("ppo_continuous_action_isaacgym", "--env-id fast", BRAX, ["brax"]),
    ("compact", "--env-id LunarLander-v3 --model mlp", FLAT, ["Box2D"]),
    ("compact", "--env-id PongNoFrameskip-v4 --model cnn --end-on-life-loss --clip-rewards", IMAGES, ["ale_py"]),
    ("ppo", "--env-id CarRacing-v3 --model cnn", IMAGES.replace("envs 2", "envs 1").replace("32", "16"), ["Box2D"]),
    ("ppo", "--env-id CartPole-v1 --recurrent lstm", FLAT, []),
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("variant,flags,sizes,packages", RUNS, ids=[f"{run[0]} {run[1]}" for run in RUNS])
def test_two_iterations(variant, flags, sizes, packages, tmp_path, capsys):
    """Also the messages: sticky actions of the v5 ids, and a variant for several processes that runs in one."""
    absent = [package for package in packages if importlib.util.find_spec(package) is None]
    if absent:  # not by importing: EnvPool must not be imported before its libraries
        pytest.skip(f"{', '.join(absent)} not installed")
    run = tmp_path / "run"
    words = f"{flags} {sizes} --threads 1 --logger none".split()
    assert main(["train", variant, *words, "--run-dir", str(run)]) == 0
    said = capsys.readouterr().err
    assert ("sticky" in said) == ("ALE/" in flags) and ("torchrun --standalone" in said) == ("multigpu" in variant)
    kept = json.loads((run / "config.json").read_text())
    assert kept["variant"] == variant and kept["config"]["env_id"] == words[1]
    summary = json.loads((run / "summary.json").read_text())
    steps = kept["config"]["num_envs"] * kept["config"]["num_steps"] * 2
    assert summary.keys() == SUMMARY and summary["variant"] == variant and summary["steps"] == steps
    check_metrics(run, kept["config"])
    check_model(run)


def check_metrics(run, config):
    """Two lines; every loss is a finite number, and each player of a game of several players has its columns."""
    with open(run / "metrics.csv") as file:
        lines = list(csv.DictReader(file))
    assert [line["iteration"] for line in lines] == ["1", "2"]
    losses = [name for name in lines[0] if name.startswith("losses/")]
    assert {"losses/value_loss", "losses/policy_loss", "losses/entropy", "losses/approx_kl", "losses/clipfrac",
            "losses/grad_norm", "losses/explained_variance"} <= set(losses)
    assert all(math.isfinite(float(line[name])) for line in lines for name in losses)
    assert lines[0]["charts/SPS"] == "" and float(lines[1]["charts/SPS"]) > 0  # the first iteration includes set-up
    players = [f"charts/episodic_{what}-player{i}" for i in (0, 1) for what in ("return", "length")]
    assert [name for name in lines[0] if "-player" in name] == (players if config["env_id"] == "pong_v3" else [])


def check_model(run):
    """The saved model chooses valid actions for N observations and for one, and the same ones a second time."""
    model = proximo.load(run)
    obs, space = some_observations(model.spec), model.spec.action_space
    actions = model.act(obs)
    assert len(actions) == 3 and all(space.contains(action) for action in actions)
    model.reset(seed=0)
    assert np.array_equal(model.act(obs), actions)
    model.reset(seed=0)
    one = model.act(obs[0], deterministic=True)
    assert space.contains(one)


def some_observations(spec):
    """Three observations as the environment returns them; of suites without a space, rows."""
    if spec.observation_space is not None:
        spec.observation_space.seed(0)
        found = [spec.observation_space.sample() for _ in range(3)]
        return np.stack(found) if isinstance(found[0], (np.ndarray, np.generic)) else found
    rng, shape = np.random.default_rng(0), (3, *spec.obs_shape)
    return rng.integers(0, 256, shape).astype(spec.obs_dtype) if spec.obs_dtype == np.uint8 else rng.normal(size=shape)


@pytest.mark.filterwarnings("ignore")
def test_batched_simulation_exchanges_torch_tensors(tmp_path, monkeypatch):
    """Actions, observations and rewards are tensors, without a copy through numpy: they share the memory of JAX."""
    pytest.importorskip("brax")
    from proximo.envs.brax_pure import BraxEnvs

    step, put, raw, seen = BraxEnvs.step, RolloutBuffer.put, [], []

    def recorded_step(self, action):
        raw.append((action, step(self, action)))
        return raw[-1][1]

    def recorded_put(self, t, answer):
        action, made = raw[-1]
        seen.append([*(isinstance(part, torch.Tensor) for part in
                       (action, *(x for x in answer[:8] if x is not None), *answer.episode)),
                     answer.obs.data_ptr() == made.obs.unsafe_buffer_pointer()])
        put(self, t, answer)

    monkeypatch.setattr(BraxEnvs, "step", recorded_step)
    monkeypatch.setattr(RolloutBuffer, "put", recorded_put)
    words = f"--env-id fast {BRAX} --threads 1 --logger none --run-dir {tmp_path / 'run'}".split()
    assert main(["train", "ppo_continuous_action_isaacgym", *words]) == 0
    assert len(seen) == 8 and all(all(parts) for parts in seen)
