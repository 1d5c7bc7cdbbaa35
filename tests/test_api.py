"""From Python: proximo.train and proximo.load, environments, networks and losses of one's own, and threads."""

import json
import threading

import gymnasium
import numpy as np
import pytest
from proximo.on_torch.recipes.ppo import make_agent, make_envs

import proximo
from proximo.cli.main import main
from proximo.config import Config
from proximo.envs.gym import make_gym
from proximo.envs.gym_loop import GymEnvs
from proximo.errors import FilesError, UsageError
from proximo.on_torch.agent import SeparateAgent
from proximo.on_torch.distributions import CategoricalHead
from proximo.on_torch.loss import ppo_loss
from proximo.on_torch.networks import mlp
from proximo.on_torch.train import train as loop
from proximo.variants import RPO
from tests.support.runs import at_iteration, same_logs, same_weights, terminate, train

CFG = Config(num_envs=2, num_steps=16, num_minibatches=2, update_epochs=2, hidden_size=8, memory_size=8,
             total_timesteps=320, checkpoint_every=3, logger="none")


def cfg(folder, **fields):
    return Config(**{**CFG.__dict__, "run_dir": str(folder), **fields})


def test_python_and_command_line_make_the_same_run(tmp_path, capsys):
    assert proximo.train(cfg(tmp_path / "python")) == tmp_path / "python"
    train(tmp_path / "words")
    assert same_weights(tmp_path / "python", tmp_path / "words") and same_logs(tmp_path / "python", tmp_path / "words")
    config, summary = (json.loads((tmp_path / "python" / name).read_text()) for name in ("config.json", "summary.json"))
    assert config["variant"] == "ppo" and config["config"]["seed"] == 1 and "torch" in config["versions"]
    assert list(summary) == ["variant", "env_id", "seed", "framework", "steps", "episodes", "episodic_return_mean",
                             "episodic_return_std", "episodic_length_mean", "episodic_length_std", "sps",
                             "wall_seconds"]
    assert summary["steps"] == 320 and summary["framework"] == "torch"


def test_the_variant_is_the_configurations_class(tmp_path, capsys):
    fields = {**CFG.__dict__, "env_id": "Pendulum-v1", "run_dir": str(tmp_path / "run"), "rpo_alpha": 0.1}
    folder = proximo.train(RPO(**fields))
    assert json.loads((folder / "config.json").read_text())["variant"] == "rpo_continuous_action"
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["episodes"] == 0 and summary["episodic_return_mean"] is None


def tiny_agent(envs, cfg):
    return SeparateAgent(mlp([4, 5, 1], 1.0), CategoricalHead(mlp([4, 5, 2], 0.01), 2))


def test_environments_network_and_loss_of_ones_own(tmp_path):
    """Passed in, nothing registered; the loss replaced by itself changes nothing, by another one everything."""
    seen = []

    def envs(cfg, seeds):
        seen.append(list(seeds))
        return GymEnvs(lambda *_: gymnasium.make("CartPole-v1"), seeds, "mine")

    def loss(*arguments):
        seen.append(len(arguments))
        return ppo_loss(*arguments)

    proximo.train(cfg(tmp_path / "mine", env_id="mine"), envs, tiny_agent, loss)
    proximo.train(cfg(tmp_path / "recipe"), make_agent=tiny_agent)
    assert same_weights(tmp_path / "mine", tmp_path / "recipe") and len(seen[0]) == 2 and set(seen[1:]) == {11}
    with pytest.raises(FilesError, match="the weights belong to another network"):
        proximo.load(tmp_path / "mine")
    model = proximo.load(tmp_path / "mine", make_agent=tiny_agent)
    assert model.act(np.zeros(4, np.float32)) in (0, 1)


@pytest.mark.parametrize("framework", ["torch", "jax"])
def test_environments_of_ones_own_are_normalized(tmp_path, framework):
    """The model holds the moments of what was played, as without make_envs."""
    if framework == "jax":
        pytest.importorskip("flax")
    asked = {"framework": framework, "engine": "gym", "norm_obs": True, "norm_reward": True}
    own = proximo.train(cfg(tmp_path / "own", **asked), make_envs=lambda cfg, seeds: make_gym(cfg, seeds))
    plain = proximo.train(cfg(tmp_path / "plain", **asked))
    assert proximo.load(own).moments.count > 300 and same_weights(own, plain)


def test_a_run_with_a_network_of_its_own_resumes_with_it(tmp_path, monkeypatch, capsys):
    """Stopped and continued, against the same run in one go; the command line says how, and does not try."""
    whole, halves = tmp_path / "whole", tmp_path / "halves"
    proximo.train(cfg(whole), make_agent=tiny_agent)
    at_iteration(monkeypatch, 5, terminate)
    with pytest.raises(KeyboardInterrupt):
        proximo.train(cfg(halves), make_agent=tiny_agent)
    assert main(["resume", str(halves)]) == 2
    assert f"continue it with: proximo.resume('{halves}', make_agent=...)" in capsys.readouterr().err
    with pytest.raises(UsageError, match="parts of its own"):
        proximo.resume(halves)
    assert proximo.resume(halves, make_agent=tiny_agent) == halves
    assert same_weights(whole, halves) and same_logs(whole, halves)
    assert proximo.resume(halves, make_agent=tiny_agent) == halves  # nothing is left to do


def test_all_problems_come_at_once_and_leave_nothing(tmp_path):
    with pytest.raises(UsageError) as error:
        proximo.train(cfg(tmp_path / "run", gamma=3.0, num_minibatches=5))
    assert len(str(error.value).splitlines()) == 2
    with pytest.raises(UsageError, match="Did you mean CartPole-v1"):
        proximo.train(cfg(tmp_path / "run", env_id="CartPoll-v1"))
    assert not (tmp_path / "run").exists()
    proximo.train(cfg(tmp_path / "run"))
    with pytest.raises(UsageError, match="holds a run already"):
        proximo.train(cfg(tmp_path / "run"))


def test_a_configuration_of_no_variant_is_pointed_to_the_loop(tmp_path):
    class Mine(Config):
        pass

    with pytest.raises(UsageError, match="Mine is the configuration of no variant; call the loop itself"):
        proximo.train(Mine())


def test_a_signal_ends_a_call_as_ctrl_c_does(tmp_path, monkeypatch):
    """The loop around it must not go on with the next seed."""
    at_iteration(monkeypatch, 4, terminate)
    with pytest.raises(KeyboardInterrupt):
        proximo.train(cfg(tmp_path / "run"))


def test_training_in_a_thread(tmp_path):
    """Signals belong to the main thread; a notebook or a tuner may train in another."""
    failures = []

    def work():
        try:
            proximo.train(cfg(tmp_path / "run"))
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert failures == [] and (tmp_path / "run" / "summary.json").exists()


def test_the_loop_is_an_ordinary_generator():
    """Stop when you like, go on from a snapshot; nothing is written and nothing watches."""
    whole = [it.stats["losses/value_loss"] for it in loop(CFG, make_envs, make_agent)]
    snapshot, first = None, []
    for it in loop(CFG, make_envs, make_agent):
        first.append(it.stats["losses/value_loss"])
        if it.iteration == 4:
            snapshot = it.snapshot()
            break
    rest = [it.stats["losses/value_loss"] for it in loop(CFG, make_envs, make_agent, state=snapshot)]
    assert len(whole) == 10 and first + rest == whole


def test_videos_from_python(tmp_path):
    """At checkpoints and at the end, as --capture-video makes them."""
    folder = proximo.train(cfg(tmp_path / "run", capture_video=True, total_timesteps=96))
    assert [path.name for path in sorted((folder / "videos").glob("*.mp4"))] == ["step-000000096.mp4"]
