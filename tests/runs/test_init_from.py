"""--init-from: the first weights and statistics are those of the model, against the model's own; and what is refused."""

import json
import shutil
from functools import partial

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import proximo
from proximo.cli.main import main
from proximo.config import Config
from proximo.envs.arrays.moments import Moments, known_statistics, update_moments
from proximo.envs.normalize import start_statistics
from proximo.errors import UsageError
from proximo.models.read_folder import read_model
from proximo.models.save_folder import moments_of
from proximo.runs.folder.run import SWEEP
from tests.support.probes import UNIT, Probe
from tests.support.runs import SMALL, CrashError, at_iteration, crash, same_logs, same_weights, train, weights
from tests.support.torchrun import run_lines_on_two_ranks

NORMALISED = ("--norm-obs", "--norm-reward")
STILL = {"learning_rate": 1e-12, "anneal_lr": False, "num_envs": 2, "num_steps": 16, "num_minibatches": 2, "update_epochs": 1,
         "hidden_sizes": (8, 8), "total_timesteps": 32, "norm_obs": True, "norm_reward": True}  # Adam moves weights by about 1e-12


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("init") / "trained"
    assert train(folder, *NORMALISED, "--learning-rate", "0.01") == 0
    return folder


def first(**values):
    """The first iteration of a run that learns nothing."""
    pytest.importorskip("flax" if values.get("framework") == "jax" else "torch")
    return next(it for it in proximo.iterations("ppo", **STILL | values))


def merged(known, rows):
    """Mean and variance of the rows that moments stand for and of further ones, by their definition in float64."""
    total = float(known.count) + len(rows)
    mean = (known.mean * known.count + rows.sum(0)) / total
    square = (known.var + known.mean**2) * known.count + (rows**2).sum(0)
    return mean, square / total - mean**2, total


@pytest.mark.parametrize("framework", ["torch", "jax"])
def test_the_weights_and_statistics_of_a_run(framework, trained):
    """Those of a torch run, in both frameworks; a run without init_from has others."""
    model = read_model(trained)
    it = first(framework=framework, init_from=str(trained))
    assert it.weights().keys() == model["weights"].keys()
    assert all(np.allclose(x, model["weights"][name], rtol=0, atol=1e-6) for name, x in it.weights().items())
    obs, ret = moments_of(model)["obs"], moments_of(model)["ret"]
    assert np.allclose(it.statistics.obs.count, obs.count + 2 * 17) and np.allclose(it.statistics.ret.count, ret.count + 2 * 16)
    fresh = first(framework=framework)
    assert not all(np.allclose(x, model["weights"][name], atol=1e-3) for name, x in fresh.weights().items())
    assert np.allclose(fresh.statistics.obs.count, 2 * 17, atol=1)


def test_a_run_of_torch_begins_with_a_model_of_jax(tmp_path):
    """The names and layouts of both frameworks are the same."""
    pytest.importorskip("flax")
    assert train(tmp_path / "jax", *NORMALISED, "--framework", "jax") == 0
    model, it = read_model(tmp_path / "jax"), first(init_from=str(tmp_path / "jax"))
    assert all(np.allclose(x, model["weights"][name], rtol=0, atol=1e-6) for name, x in it.weights().items())
    assert np.allclose(it.statistics.ret.count, moments_of(model)["ret"].count + 2 * 16)


def test_statistics_continue(trained):
    """What is counted is added to the moments of the model, against their definition."""
    rng, obs = np.random.default_rng(0), moments_of(read_model(trained))["obs"]
    found = known_statistics(partial(start_statistics, 2, (4,)), {"obs": obs})
    assert np.array_equal(found.obs.mean, obs.mean) and float(found.ret.count) < 1e-3
    rows = rng.normal(3, 2, (500, 4))
    after = update_moments(found.obs, rows, None)
    for one, other in zip(after, merged(Moments(*map(np.float64, obs)), rows)):
        assert np.allclose(one, other)


def test_another_scale_of_returns_is_warned_of(trained, caplog):
    """The value function predicts returns of the model's own run. Equal settings give no warning."""
    for changes, said in (({}, 0), ({"gamma": 0.9}, 1), ({"norm_reward": False}, 1)):
        proximo.errors.warn_once.cache_clear()
        caplog.clear()
        first(init_from=str(trained), **changes)
        assert caplog.text.count("Its value function was learned for another scale of returns.") == said


def test_a_loaded_model_is_answered_with_what_to_do(trained):
    model = proximo.load(trained)
    for start in (lambda: proximo.train("ppo", init_from=model), lambda: proximo.train(Config(init_from=model)),
                  lambda: next(proximo.iterations(Config(init_from=model)))):
        with pytest.raises(UsageError, match=r"^init_from is a model\. Give the folder of a run or a model: "):
            start()


@pytest.mark.parametrize("name, values", [("obs", (np.zeros(3), np.ones(3), 5.0)), ("ret", (0.0, np.ones(2), 5.0))])
def test_statistics_of_other_observations_are_refused(name, values):
    """They would be repeated for every part of an observation."""
    with pytest.raises(proximo.UsageError, match=f"the statistics {name} of the model have other shapes"):
        known_statistics(partial(start_statistics, 2, (4,)), {name: Moments(*map(np.asarray, values))})


def test_a_trained_agent_acts_well_from_the_first_step(tmp_path):
    """CartPole: random weights balance for about 22 steps; these continue where the first run ended."""
    values = {"num_envs": 8, "num_steps": 128, "learning_rate": 2e-3, "logger": "none"}
    run = proximo.train("ppo", total_timesteps=40_960, run_dir=str(tmp_path / "run"), **values)
    it = next(iter(proximo.iterations("ppo", init_from=str(run), **values | {"num_envs": 4, "num_steps": 500})))
    assert np.mean(it.finished.ret) > 100


def test_the_start_says_what_the_run_begins_with(trained, tmp_path, capsys):
    """Statistics only if it normalises: a run without them was said to begin with statistics."""
    assert train(tmp_path / "one", *NORMALISED, "--init-from", trained) == 0
    assert f"begins with the weights and the statistics of normalisation of {trained}." in capsys.readouterr().err
    assert train(tmp_path / "two") == 0 and train(tmp_path / "three", "--init-from", tmp_path / "two") == 0
    assert f"begins with the weights of {tmp_path / 'two'}." in capsys.readouterr().err


@pytest.mark.parametrize("words", [("--recurrent", "lstm"), ("--env-id", "tests.support.probes:Rich-v0"),
                                   ("--framework", "jax", "--num-seeds", "2"), ("--env-workers", "2")], ids=" ".join)
def test_with_other_features(words, tmp_path):
    """A run begins with the weights of one with the same settings, and every seed with the same ones."""
    if "jax" in words:
        pytest.importorskip("flax")
    single = words[:2] if "--num-seeds" in words else words
    assert train(tmp_path / "one", *NORMALISED, *single) == 0
    still = ("--init-from", tmp_path / "one", "--learning-rate", "1e-12", "--no-anneal-lr", "--seed", "5")
    assert train(tmp_path / "two", *NORMALISED, *words, *still) == 0
    for folder in [*(tmp_path / "two").glob("seed-*")] or [tmp_path / "two"]:
        one, two = weights(tmp_path / "one"), weights(folder)
        assert all(np.allclose(one[name], two[name], rtol=0, atol=1e-6) for name in one)


@pytest.mark.parametrize("framework", ["torch", "jax"])
def test_a_resume_is_exact_and_does_not_read_the_model_again(framework, trained, tmp_path, monkeypatch):
    """With a checkpoint the model is not needed; without one, the run begins with it again."""
    if framework == "jax":
        pytest.importorskip("flax")
    shutil.copytree(trained, tmp_path / "model")
    words = (*NORMALISED, "--framework", framework, "--init-from", tmp_path / "model")
    assert train(tmp_path / "whole", *words) == 0
    for name, last in (("early", 1), ("late", 5)):
        with monkeypatch.context() as patch:
            at_iteration(patch, last, crash)
            with pytest.raises(CrashError):
                train(tmp_path / name, *words)
    assert main(["resume", str(tmp_path / "early")]) == 0
    shutil.rmtree(tmp_path / "model")
    assert main(["resume", str(tmp_path / "late")]) == 0
    for name in ("early", "late"):
        assert same_weights(tmp_path / "whole", tmp_path / name) and same_logs(tmp_path / "whole", tmp_path / name)


def test_sources(trained, tmp_path):
    """A checkpoint and a saved model hold what the run holds: both kinds of statistics are in each."""
    proximo.load(trained).save(tmp_path / "saved")
    newest = max((trained / "checkpoints").iterdir())
    runs = [first(init_from=str(source)) for source in (trained, newest, tmp_path / "saved")]
    for other in runs[1:]:
        assert all(np.array_equal(x, other.weights()[name]) for name, x in runs[0].weights().items())
        assert all(np.array_equal(x, y) for x, y in zip(runs[0].statistics.ret, other.statistics.ret))
        assert all(np.array_equal(x, y) for x, y in zip(runs[0].statistics.obs, other.statistics.obs))


def test_two_processes(trained, tmp_path):
    """Both ranks begin with the model."""
    line = ["train", "ppo", *SMALL, *NORMALISED, "--run-dir", tmp_path / "run", "--init-from", trained, "--learning-rate", 1e-12]
    run_lines_on_two_ranks([" ".join(map(str, line))], tmp_path)
    one, two = weights(trained), weights(tmp_path / "run")
    assert all(np.allclose(one[name], two[name], rtol=0, atol=1e-6) for name in one)


@pytest.mark.parametrize("words, sentence", [
    (("--hidden-sizes", "9", "8"), "It was trained with hidden_sizes=8 8, and this run has hidden_sizes=9 8. "
     "To begin with the weights that fit, save a model of this network"),
    (("--activation", "relu"), " was trained with activation=tanh, and this run has activation=relu."),
    (("--no-norm-obs",), " was trained with norm_obs=True, and this run has norm_obs=False."),
    (("--env-id", "Acrobot-v1"), " does not fit this run: the weights belong to another network: critic.layers.0.weight is (8, 4), "
                                 "expected (8, 6)"),
    (("--env-id", "Acrobot-v1"), "The environment has observations float32 of shape (6,) and the actions Discrete(3), but the agent was "
                                 "trained with observations float32 of shape (4,) and the actions Discrete(2). To begin with the weights "
                                 "that fit, "),
])
def test_another_network_is_refused(words, sentence, trained, tmp_path, capsys):
    """Also where the shapes fit and only the meaning differs. No folder is left."""
    assert train(tmp_path / "run", *NORMALISED, "--init-from", trained, *words) == 2
    said = capsys.readouterr().err
    assert f"init_from={trained}" in said and sentence in said and "used as it is" not in said
    assert not (tmp_path / "run").exists()


def test_only_settings_of_the_network_are_named(trained, tmp_path, capsys):
    """Those of the first weights, which init_from replaces, may differ; no sizes are shown as empty."""
    words = ("--policy-sizes", "9", "--value-sizes", "9", "--no-orthogonal-init")
    assert train(tmp_path / "run", *NORMALISED, "--init-from", trained, *words) == 2
    said = capsys.readouterr().err
    assert "policy_sizes=empty, and this run has policy_sizes=9." in said and "orthogonal_init" not in said


def test_a_deviation_that_is_added_to_the_network_is_named(tmp_path, capsys):
    """With --state-dependent-std it is no first weight: the policy of the new run was another one."""
    line = ("--env-id", "Pendulum-v1", "--state-dependent-std")
    assert train(tmp_path / "one", *line, "--log-std-init", "-2") == 0
    assert train(tmp_path / "two", *line, "--init-from", tmp_path / "one") == 2
    assert "was trained with log_std_init=-2.0, and this run has log_std_init=0.0." in capsys.readouterr().err
    assert train(tmp_path / "three", *line, "--log-std-init", "-2", "--init-from", tmp_path / "one") == 0


class TwoSides(Probe):
    """Observations of two parts with one shape."""

    observation_space = spaces.Dict(left=UNIT, right=UNIT)

    def observe(self):
        return {"left": super().observe(), "right": -super().observe()}


class Reach(Probe):
    """One action between two bounds."""

    def __init__(self, far=1.0):
        self.action_space = spaces.Box(-far, far, (1,), np.float32)


gymnasium.register("TwoSides-v0", entry_point=TwoSides)
gymnasium.register("Reach-v0", entry_point=Reach)


def test_another_part_that_the_policy_does_not_see_is_named(tmp_path, capsys):
    """The weights of one part were used for the other one, because their shapes are equal."""
    line = ("--env-id", "TwoSides-v0", "--total-timesteps", "32", "--critic-obs")
    assert train(tmp_path / "one", *line, "left") == 0
    assert train(tmp_path / "two", *line, "right", "--init-from", tmp_path / "one") == 2
    assert "was trained with critic_obs=left, and this run has critic_obs=right." in capsys.readouterr().err
    assert train(tmp_path / "three", *line, "left", "--init-from", tmp_path / "one") == 0


@pytest.mark.parametrize("framework", ["torch", "jax"])
def test_other_bounds_of_actions_are_told(framework, tmp_path, capsys):
    """The same outputs of a squashed policy are other actions. Nothing is said where the bounds are equal."""
    if framework == "jax":
        pytest.importorskip("jax")
    line = ("--framework", framework, "--env-id", "Reach-v0", "--distribution", "squashed", "--total-timesteps", "32", "--env-kwargs")
    assert train(tmp_path / "one", *line, "far=1.0") == 0
    for name, told in (("1.0", 0), ("2.0", 1)):
        capsys.readouterr()
        assert train(tmp_path / name, *line, f"far={name}", "--init-from", tmp_path / "one") == 0
        said = capsys.readouterr().err
        assert said.count("The environment has the actions Box(-2.0, 2.0, (1,), float32), but the agent was trained with "
                          "Box(-1.0, 1.0, (1,), float32). Its network is used as it is.") == told, said


def test_a_folder_of_several_runs_names_one(trained, tmp_path, capsys):
    """As "contains no model"."""
    for seed in (1, 2):
        shutil.copytree(trained, tmp_path / "runs" / f"seed-{seed}")
    (tmp_path / "runs" / SWEEP).write_text(json.dumps({"members": ["seed-1", "seed-2"]}))
    assert train(tmp_path / "run", "--init-from", tmp_path / "runs") == 2
    said = capsys.readouterr().err
    assert f"contains 2 runs. Name one of them, such as {tmp_path / 'runs' / 'seed-1'}." in said


def test_what_is_no_model(trained, tmp_path, capsys):
    """Reported together with other problems: exit code 2 where there is no folder, 5 where its content is wrong."""
    assert train(tmp_path / "run", "--init-from", tmp_path / "nowhere", "--gamma", "3") == 2
    said = capsys.readouterr().err
    assert "gamma=3.0 must be between 0 and 1" in said and f"init_from={tmp_path / 'nowhere'} cannot be used: " in said
    assert train(tmp_path / "run", "--init-from", tmp_path) == 5
    assert "contains no model" in capsys.readouterr().err
    shutil.copytree(trained / "model", tmp_path / "broken")
    (tmp_path / "broken" / "tensors.safetensors").write_bytes(b"0")
    assert train(tmp_path / "run", "--init-from", tmp_path / "broken") == 5
