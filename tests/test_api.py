"""From Python: proximo.train and proximo.load, environments, networks and losses of one's own, and threads."""

import json
import os
import re
import subprocess
import sys
import threading
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import gymnasium
import numpy as np
import pytest
import torch

import proximo
from proximo.catalog import parts_of
from proximo.cli.main import main
from proximo.config import Config
from proximo.envs.gym import make_gym
from proximo.envs.gym_loop import GymEnvs
from proximo.errors import EnvError, FilesError, NumbersError, UsageError, warn_once
from proximo.on_torch.agent import SeparateAgent
from proximo.on_torch.assemble import assemble
from proximo.on_torch.distributions import CategoricalHead
from proximo.on_torch.loss import ppo_loss
from proximo.on_torch.mlp import MLP
from proximo.on_torch.train import train as train_on_torch
from proximo.runs.presets import presets
from proximo.runs.settings.config_class import problems_of_class
from proximo.runs.settings.resolve import with_changes
from proximo.types import LossInputs
from proximo.variants import RPO, Continuous
from tests.support.runs import at_iteration, same_logs, same_weights, terminate, train

CFG = Config(num_envs=2, num_steps=16, num_minibatches=2, update_epochs=2, hidden_sizes=(8, 8), memory_size=8,
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
                             "compile_seconds", "wall_seconds"]
    assert summary["steps"] == 320 and summary["framework"] == "torch"


def test_the_variant_is_the_configurations_class(tmp_path, capsys):
    fields = {**CFG.__dict__, "env_id": "Pendulum-v1", "run_dir": str(tmp_path / "run"), "rpo_alpha": 0.1}
    folder = proximo.train(RPO(**fields))
    assert json.loads((folder / "config.json").read_text())["variant"] == "rpo_continuous_action"
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["episodes"] == 0 and summary["episodic_return_mean"] is None


def tiny_agent(spec, cfg):
    return SeparateAgent(MLP([4, 5, 1], 1.0), CategoricalHead(MLP([4, 5, 2], 0.01), 2))


def test_environments_network_and_loss_of_ones_own(tmp_path, capsys):
    """Passed in, nothing registered; the loss replaced by itself changes nothing, by another one everything."""
    seen = []

    def envs(cfg, seeds):
        seen.append(list(seeds))
        return GymEnvs(lambda *_: gymnasium.make("CartPole-v1"), seeds, "mine")

    def loss(inputs, cfg):
        seen.append(type(inputs))
        return ppo_loss(inputs, cfg)

    proximo.train(cfg(tmp_path / "mine", env_id="mine"), make_envs=envs, make_agent=tiny_agent, loss_fn=loss)
    proximo.train(cfg(tmp_path / "variant"), make_agent=tiny_agent)
    assert same_weights(tmp_path / "mine", tmp_path / "variant") and len(seen[0]) == 2 and LossInputs in seen
    for call in (proximo.load, proximo.evaluate):
        with pytest.raises(UsageError, match="was trained with a network of its own. Pass the same make_agent=FUNCTION."):
            call(tmp_path / "variant")
    with pytest.raises(FilesError, match=r"the weights belong to another network: ([^,]+ is [^:]*, expected [^:]*){3}, and \d+ more\."):
        proximo.load(tmp_path / "mine", make_agent=assemble)
    for command in ("eval", "export", "card"):  # of a run whose environment has an id
        assert main([command, str(tmp_path / "variant")]) == 2
        said = capsys.readouterr().err
        run = repr(str(tmp_path / "variant"))
        assert (f"was trained with a network of its own, which only its program has. Use proximo.evaluate({run}, make_agent=...)"
                f" there, or proximo.watch({run}, 'video.mp4', make_agent=...). The model of proximo.load({run}, make_agent=...) can act and export.") in said
    assert main(["eval", run := str(tmp_path / "mine")]) == 2
    assert f"Use proximo.evaluate({run!r}, make_envs=..., make_agent=...) there, or proximo.watch(" in capsys.readouterr().err
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


def test_make_envs_without_an_id_says_under_which_one_the_run_is_recorded(tmp_path, capsys, caplog):
    """As a warning, which programs without a configuration of logging show."""
    def make_envs(cfg, seeds):
        return make_gym(cfg, seeds)

    said = "make_envs was given without env_id, so the run is recorded as CartPole-v1, and reports compare it with runs of that"
    proximo.train(cfg(tmp_path / "default"), make_envs=make_envs)
    assert said in capsys.readouterr().err
    assert [one.levelname for one in caplog.records if said in one.message] == ["WARNING"]
    proximo.train(cfg(tmp_path / "named"), env_id="CartPole-v1", make_envs=make_envs)
    proximo.train(cfg(tmp_path / "other", env_id="Acrobot-v1"), make_envs=make_envs)
    proximo.train(cfg(tmp_path / "variant"))
    assert "without env_id" not in capsys.readouterr().err


def test_a_run_with_a_network_of_its_own_resumes_with_it(tmp_path, monkeypatch, capsys):
    """Stopped and continued, against the same run in one go; the command line says how, and does not try."""
    whole, halves = tmp_path / "whole", tmp_path / "halves"
    proximo.train(cfg(whole), make_agent=tiny_agent)
    at_iteration(monkeypatch, 5, terminate)
    with pytest.raises(KeyboardInterrupt):
        proximo.train(cfg(halves), make_agent=tiny_agent)
    assert main(["resume", str(halves)]) == 2
    assert f"Resume it with: proximo.resume('{halves}', make_agent=...)" in capsys.readouterr().err
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
    with pytest.raises(UsageError) as error:
        proximo.train("ppo", env_file=3, env_id="CartPole-v1", gamma=3, seed=torch.zeros(1, device="meta"))
    assert {line.partition("=")[0] for line in str(error.value).splitlines()} == {"env_file", "seed"}
    proximo.train(cfg(tmp_path / "run"))
    with pytest.raises(UsageError, match="contains a run already"):
        proximo.train(cfg(tmp_path / "run"))


@dataclass(frozen=True)
class Wide(Continuous):
    """Other defaults only."""

    hidden_sizes: tuple[int, ...] = (8, 8)
    num_steps: int = 64
    num_minibatches: int = 2
    update_epochs: int = 1
    total_timesteps: int = 128
    logger: str = "none"


def first_loss(inputs, cfg):
    return ppo_loss(inputs, cfg)


def second_loss(inputs, cfg):
    return ppo_loss(inputs, cfg)


def test_a_resume_records_the_parts_that_it_is_given(tmp_path, capsys):
    """The next resume asks for them; without an iteration left, nothing is recorded."""
    run = proximo.train(cfg(tmp_path / "run"))
    proximo.resume(run, loss_fn=first_loss)
    assert json.loads((run / "config.json").read_text())["own_parts"] == {} and "first_loss" not in capsys.readouterr().err
    for steps, loss, said in ((384, first_loss, "loss_fn none -> first_loss"), (448, first_loss, ""),
                              (512, second_loss, "loss_fn first_loss -> second_loss")):
        proximo.resume(run, loss_fn=loss, total_timesteps=steps)
        told = capsys.readouterr().err
        assert said in told and ("not trained with" in told) == bool(said)
        record = json.loads((run / "config.json").read_text())
        assert record["own_parts"] == {"loss_fn": loss.__name__} and record["resume_with"] == "proximo.resume('RUN', loss_fn=...)"
    with pytest.raises(UsageError, match=r"parts of its own. Resume it with: proximo.resume\('.*', loss_fn=...\)"):
        proximo.resume(run, total_timesteps=640)
    record = json.loads((run / "config.json").read_text())
    del record["own_parts"]  # as an earlier version wrote it
    (run / "config.json").write_text(json.dumps(record))
    proximo.resume(run, loss_fn=second_loss, total_timesteps=576)
    assert "not trained with" not in capsys.readouterr().err
    assert json.loads((run / "config.json").read_text())["own_parts"] == {"loss_fn": "second_loss"}


@pytest.mark.parametrize("given", [Wide, Wide()])
def test_a_subclass_counts_as_the_variant_it_builds_on(given, tmp_path):
    """By its class or an object of it; its defaults hold, and the run resumes without it."""
    folder = proximo.train(given, env_id="Pendulum-v1", run_dir=str(tmp_path / "run"))
    content = json.loads((folder / "config.json").read_text())
    assert content["variant"] == "ppo_continuous_action" and content["config"]["hidden_sizes"] == [8, 8]
    proximo.resume(folder, total_timesteps=192)
    assert json.loads((folder / "summary.json").read_text())["steps"] == 192


@dataclass(frozen=True)
class Frozen(Config):
    """A schedule of its own."""

    def learning_rate_at(self, iteration):
        return 0.0 * iteration


@pytest.mark.parametrize("framework", ["torch", "jax"])
@pytest.mark.parametrize("found", [-1.0, None, "0.1", float("nan")])
def test_a_schedule_that_returns_no_rate_is_refused(found, framework, tmp_path):
    class Wrong(Config):
        def learning_rate_at(self, iteration):
            return 1e-3 if iteration == 1 else found

        def clip_coef_at(self, iteration):
            return 0 * iteration

        def ent_coef_at(self, iteration):
            return -iteration

    with pytest.raises(UsageError) as error:
        proximo.train(Wrong, env_id="CartPole-v1", framework=framework, run_dir=str(tmp_path / "run"), **VALUES)
    assert re.fullmatch(r"Wrong\.learning_rate_at\(\d\) returns .*\. Return a number at least 0\.\n"
                        r"Wrong\.clip_coef_at\(1\) returns 0\. Return a number above 0\.\n"
                        r"Wrong\.ent_coef_at\(1\) returns -1\. Return a number at least 0\.", str(error.value))
    with pytest.raises(UsageError, match="num_envs=0 must be at least 1"):
        proximo.train(Wrong, env_id="CartPole-v1", run_dir=str(tmp_path / "run"), **VALUES | {"num_envs": 0})


@pytest.mark.filterwarnings("error")
def test_a_schedule_that_returns_tensors_is_one_of_numbers():
    class Tensors(Config):
        def learning_rate_at(self, iteration):
            return torch.tensor(1e-3 / iteration)

        def clip_coef_at(self, iteration):
            return torch.tensor(0.1)

    rates = [it.stats["charts/learning_rate"] for it in proximo.iterations(Tensors, env_id="CartPole-v1", **VALUES)]
    assert {type(rate) for rate in rates} == {float}
    assert rates == pytest.approx([1e-3 / iteration for iteration in range(1, len(rates) + 1)])


def test_a_schedule_that_raises_is_named(tmp_path):
    class Short(Config):
        def learning_rate_at(self, iteration):
            return [1e-3, 1e-4][iteration]

    with pytest.raises(UsageError, match=r"Short\.learning_rate_at\(\d+\) raised IndexError: list index out of range .*Correct it"):
        proximo.train(Short, env_id="CartPole-v1", run_dir=str(tmp_path / "run"), **VALUES)


@pytest.mark.parametrize("name", ["a,b", "a\nb", ' a', 'a"', ""])
def test_statistics_of_a_loss_are_columns_of_the_metrics(name, tmp_path):
    def loss(inputs, cfg):
        value, found = ppo_loss(inputs, cfg)
        return value, found | {name: value.detach()}

    with pytest.raises(UsageError, match="The loss function returns a statistic with the name .* names are columns of metrics"):
        proximo.train(cfg(tmp_path / "run"), loss_fn=loss)


@pytest.mark.parametrize("compile", [False, True])
def test_a_loss_has_the_same_statistics_at_every_call(compile, tmp_path, monkeypatch):
    """Their names come from a first call. The values of others were written under these names."""
    monkeypatch.setattr("proximo.on_torch.compile.compiled.fuse", lambda graph, changed, name: graph)
    calls = []

    def loss(inputs, cfg):
        value, found = ppo_loss(inputs, cfg)
        calls.append(len(inputs.value))
        return value, {"spread": inputs.value.detach().std()} | found if len(calls) == 1 else found

    with pytest.raises(UsageError, match=r"statistics value_loss, .*, clipfrac, and at first spread, value_loss, .*\. Return"):
        proximo.train(cfg(tmp_path / "run", compile=compile), loss_fn=loss)


def test_a_loss_may_need_several_rows_and_change_them(tmp_path):
    """Its first call had one row, and arrays that cannot be changed in place."""
    def loss(inputs, cfg):
        inputs.advantage.mul_(1.0)
        assert inputs.value.reshape(-1, 2).shape == (cfg.minibatch_size // 2, 2)
        return ppo_loss(inputs, cfg)

    proximo.train(cfg(tmp_path / "run"), loss_fn=loss)


def test_doctor_is_named_only_where_it_can_explain(tmp_path):
    """A network of one's own is unknown to the command."""
    def nan_loss(inputs, cfg):
        value, found = ppo_loss(inputs, cfg)
        return value * float("nan"), found

    for own, words in (({}, "shows where it begins"), ({"make_agent": tiny_agent},
                       "proximo doctor does not explain them, because make_agent was passed from Python")):
        with pytest.raises(NumbersError, match=words):
            proximo.train(cfg(tmp_path / f"run{len(own)}"), loss_fn=nan_loss, **own)


def test_a_class_with_a_schedule_of_its_own_is_needed_to_resume(tmp_path, monkeypatch, capsys):
    """With the variant's class the rest would be trained with another schedule."""
    whole, halves = tmp_path / "whole", tmp_path / "halves"
    proximo.train(Frozen, run_dir=str(whole), **VALUES)
    at_iteration(monkeypatch, 5, terminate)
    with pytest.raises(KeyboardInterrupt):
        proximo.train(Frozen, run_dir=str(halves), **VALUES)
    with pytest.raises(UsageError, match=r"proximo\.resume\('.*halves', config=\.\.\.\)"):
        proximo.resume(halves)
    assert json.loads((halves / "config.json").read_text())["own_parts"] == {"config": "Frozen"}
    proximo.resume(halves, config=Frozen)
    assert same_weights(whole, halves) and same_logs(whole, halves)


@dataclass(frozen=True)
class Listed(Config):
    """A field of its own that has no default value."""

    names: list = field(default_factory=list)


@dataclass(frozen=True)
class Bonus(Config):
    """A field of its own."""

    bonus: float = 0.5


@pytest.mark.parametrize("kind", [Frozen, Bonus, Listed])
def test_a_class_of_ones_own_continues_by_itself(kind, tmp_path):
    """The same call, which names the class, starts a run, finds it finished and trains it longer."""
    for steps in (160, 160, 320):
        run = proximo.train(kind, run_dir=str(tmp_path / "run"), resume="auto", **VALUES | {"total_timesteps": steps})
    assert json.loads((run / "config.json").read_text())["own_parts"] == {"config": kind.__name__}
    assert json.loads((run / "summary.json").read_text())["steps"] == 320


def test_a_sweep_of_a_class_of_ones_own_continues_by_itself(tmp_path):
    pytest.importorskip("flax")
    for steps in (160, 320):
        values = VALUES | {"total_timesteps": steps, "gamma": [0.9, 0.99]}
        folder = proximo.sweep(Frozen, run_dir=str(tmp_path / "sweep"), resume="auto", **values)
    assert json.loads((folder / "gamma=0.99" / "summary.json").read_text())["steps"] == 320


@dataclass(frozen=True)
class Placed(Config):
    """A field of its own that JSON cannot hold."""

    place: Path = Path("here")


def test_values_that_cannot_be_recorded_are_refused(tmp_path):
    """Before anything is written; a whole number that no float can hold, too."""
    with pytest.raises(UsageError, match=r"place=PosixPath\('here'\) cannot be written to config.json. Use numbers, texts"):
        proximo.train(Placed, run_dir=str(tmp_path / "run"), **VALUES)
    with pytest.raises(UsageError, match=r"learning_rate=10000.* is not allowed\. int too large to convert to float\."):
        proximo.train("ppo", learning_rate=10**400, run_dir=str(tmp_path / "run"), **VALUES)
    assert list(tmp_path.iterdir()) == []


def test_what_is_no_configuration_is_refused():
    class Bare(Config):
        seed = 3

    @dataclass(frozen=True)
    class Typed(proximo.Config):
        hidden_sizes = (8,)
        gamma = 0.5

        def learning_rate(self, iteration):
            return 1e-3

    with pytest.raises(UsageError) as refused:
        proximo.train(Typed, total_timesteps=512)
    assert str(refused.value).splitlines() == [
        f"Typed.{name} is not used, because it has no annotation of a type. {advice}." for name, advice in (
            ("gamma", "Write gamma: float = VALUE"), ("hidden_sizes", "Write hidden_sizes: tuple[int, ...] = VALUE"),
            ("learning_rate", "For a schedule, name it learning_rate_at"))]
    @dataclass(frozen=True, slots=True)
    class Slotted(proximo.Config):
        gamma: float = 0.5

    assert problems_of_class(Slotted) == []
    with pytest.raises(UsageError, match="Bare needs the decorator @dataclass"):
        proximo.train(Bare)
    for wrong in (3, dict, {"seed": 1}):
        for call in (proximo.train, proximo.sweep):
            with pytest.raises(UsageError, match="is not a configuration class"):
                call(wrong)
    with pytest.raises(UsageError, match="ppo_atary is not a variant. Did you mean ppo_atari?"):
        proximo.train("ppo_atary")
    for wrong in (Config, "ppo", None):
        with pytest.raises(UsageError, match=r"^cfg=.* is not a configuration\. Pass an object, such as proximo\.Config"):
            next(train_on_torch(wrong, make_gym, assemble))


def test_parts_are_named_by_a_variant_and_a_framework():
    """Other frameworks gave the parts of torch."""
    for wrong in (None, 3, ["ppo"]):
        with pytest.raises(UsageError, match=r"is not a variant\..* The variants are ppo, "):
            parts_of(wrong, "torch")
    for wrong in (None, "tensorflow", ["jax"]):
        with pytest.raises(UsageError, match=r"^framework=.* is unknown\. Use torch or jax\.$"):
            parts_of("ppo", wrong)


# what the preset of CartPole-v1 changes and CFG leaves at the default
WITHOUT_PRESET = {name: getattr(Config(), name) for name in presets()["CartPole-v1"].values
                  if getattr(CFG, name) == getattr(Config(), name)}


@pytest.mark.parametrize("call", [
    lambda run, **fields: proximo.train("ppo", run_dir=str(run), **fields),
    lambda run, **fields: proximo.train(Config, run_dir=str(run), **fields),
    lambda run, **fields: proximo.train(Config(**fields), run_dir=str(run)),
    lambda run, **fields: proximo.train(Config(), run_dir=run, **fields),
    lambda run, **fields: proximo.train(env="CartPole-v1", run_dir=str(run), **WITHOUT_PRESET, **fields),
    lambda run, **fields: proximo.train(env_id="CartPole-v1", run_dir=str(run), **WITHOUT_PRESET, **fields)])
def test_every_way_to_name_a_run_gives_the_same(call, tmp_path):
    """By variant, class, object, or the environment alone; values as keyword arguments."""
    fields = {**CFG.__dict__, "total_timesteps": 64}
    fields = {name: fields[name] for name in fields if fields[name] != getattr(Config(), name)}
    proximo.train(cfg(tmp_path / "run", total_timesteps=64))
    call(tmp_path / "other", **fields)
    assert same_weights(tmp_path / "run", tmp_path / "other")


def test_wrong_names_are_named_with_the_nearest():
    with pytest.raises(UsageError) as error:
        proximo.train("ppo", learning_rat=1e-3, totl_timesteps=5)
    assert str(error.value).splitlines() == [
        "learning_rat is not a field of this variant. Did you mean learning_rate?",
        "totl_timesteps is not a field of this variant. Did you mean total_timesteps?"]


@pytest.mark.parametrize(("config", "values", "told"), [
    ("CartPole-v1", {}, "To name an environment, write env_id='CartPole-v1'."),
    (gymnasium.make("CartPole-v1"), {}, "An environment is given as env=..."),
    (None, {"preset": "CartPole-v1"}, "proximo.train(proximo.preset(ID))"),
    ("ppo", {"seeds": 3}, "Use seed=... or num_seeds="),
    ("ppo", {"hidden_sizes": 256}, "hidden_sizes=256 is not allowed. Use a list of whole numbers, such as [64, 64]."),
    ("ppo", {"env_wrappers": 3}, "env_wrappers=3 is not allowed. Use a list of texts.")], ids=str)
def test_advice_is_about_python(config, values, told):
    """What a program can write, and not a flag."""
    with pytest.raises(UsageError) as error:
        proximo.train(config, **values)
    assert told in str(error.value) and "proximo train --" not in str(error.value)


class Corridor(gymnasium.Env):
    """Walk right to the end; an environment that is registered nowhere."""

    observation_space = gymnasium.spaces.Box(0, 1, (3,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, length=5):
        self.length, self.place = length, 0

    def observe(self):
        return np.full(3, self.place / self.length, np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place = 0
        return self.observe(), {}

    def step(self, action):
        self.place = max(0, self.place + 2 * int(action) - 1)
        return self.observe(), float(self.place == self.length), self.place == self.length, False, {}


VALUES = {name: getattr(CFG, name) for name in ("num_envs", "num_steps", "num_minibatches", "update_epochs",
                                                "hidden_sizes", "total_timesteps", "checkpoint_every", "logger")}


@pytest.mark.parametrize("env", [Corridor, Corridor(), lambda: Corridor(), partial(Corridor, length=5)])
def test_environments_that_are_registered_nowhere(env, tmp_path):
    """A class, an object and functions give the same run as make_envs; the variant follows from the spaces."""
    folder = proximo.train(env=env, run_dir=str(tmp_path / "run"), **VALUES)
    proximo.train("ppo", make_envs=lambda cfg, seeds: GymEnvs(Corridor, seeds, "Corridor"),
                  run_dir=str(tmp_path / "other"), **VALUES)
    assert same_weights(folder, tmp_path / "other")
    content = json.loads((folder / "config.json").read_text())
    assert (content["variant"], content["config"]["env_id"]) == ("ppo", "Corridor")
    assert content["resume_with"] == "proximo.resume('RUN', env=...)"


def test_an_environment_for_a_run_that_has_an_id_is_refused(tmp_path):
    """Nothing is said about the checkpoint, which is whole. The same id is no change; another one is."""
    run = proximo.train("ppo", run_dir=str(tmp_path / "run"), **VALUES)
    for given in ({"env": Corridor}, {"make_envs": lambda cfg, seeds: GymEnvs(Corridor, seeds, "Corridor")}):
        with pytest.raises(UsageError, match="was trained with env_id=CartPole-v1, .* Leave env and make_envs out"):
            proximo.resume(run, total_timesteps=640, **given)
    with pytest.raises(UsageError, match="env_id=Acrobot-v1 was given, but the run has env_id=CartPole-v1"):
        proximo.resume(run, env="Acrobot-v1")
    assert proximo.resume(run, env="CartPole-v1", total_timesteps=640) == run
    own = proximo.train(env=Corridor, run_dir=str(tmp_path / "own"), **VALUES)
    with pytest.raises(UsageError, match="an id does not take its place"):
        proximo.resume(own, env="Corridor-v0")


class Blank(gymnasium.Env):
    """Episodes of ten steps in which nothing happens."""

    def __init__(self, actions, dtype=np.float32, size=3):
        self.action_space = actions
        self.observation_space = gymnasium.spaces.Box(0, 9, (size,), dtype)

    def reset(self, *, seed=None, options=None):
        self.steps = 0
        return np.zeros(self.observation_space.shape, self.observation_space.dtype), {}

    def step(self, action):
        self.steps += 1
        assert self.action_space.contains(action)
        return np.zeros(self.observation_space.shape, self.observation_space.dtype), 1.0, self.steps == 10, False, {}


def test_a_trained_agent_gets_the_spaces_that_it_was_trained_with(tmp_path):
    """Others have as many numbers, so the weights fit: choices in another division, means instead of logits, bytes."""
    spaces = gymnasium.spaces
    own = partial(Blank, spaces.MultiDiscrete([2, 3]))
    run = proximo.train("ppo", own, run_dir=str(tmp_path / "run"), **VALUES)
    for other in (Blank(spaces.MultiDiscrete([3, 2])), Blank(spaces.Discrete(5)), Blank(spaces.Box(-1, 1, (5,))),
                  Blank(spaces.Tuple([spaces.Discrete(2), spaces.Discrete(3)])), Blank(spaces.MultiDiscrete([2, 3]), np.uint8)):
        with pytest.raises(UsageError, match=r"was trained with observations float32 of shape \(3,\) and the actions Multi"):
            proximo.evaluate(run, 2, env=other)
        with pytest.raises(UsageError, match=r"was trained with observations float32 of shape \(3,\) and the actions Multi"):
            proximo.resume(run, env=other, total_timesteps=640)
    assert proximo.evaluate(run, 2, env=own).returns == [10.0, 10.0]
    assert proximo.resume(run, env=own, total_timesteps=640) == run


class Seeing(Blank):
    """Blank with other observations, and a state that cannot be saved."""

    def __init__(self, space, actions=None):
        super().__init__(actions or gymnasium.spaces.Discrete(2))
        self.observation_space, self.lock = space, threading.Lock()

    def reset(self, *, seed=None, options=None):
        self.steps = 0
        return self.observation_space.sample(), {}

    def step(self, action):
        self.steps += 1
        return self.observation_space.sample(), 1.0, self.steps == 10, False, {}


def vectors(**sizes):
    return gymnasium.spaces.Dict({name: gymnasium.spaces.Box(-1, 1, (size,)) for name, size in sizes.items()})


@pytest.mark.parametrize("space,others", [
    (vectors(a=2, b=3), [vectors(a=3, b=2), vectors(c=2, d=3), gymnasium.spaces.Box(-1, 1, (5,))]),
    (gymnasium.spaces.MultiDiscrete([2, 3]), [gymnasium.spaces.MultiDiscrete([3, 2]), gymnasium.spaces.Discrete(5)])])
def test_observations_of_the_same_size_with_other_parts_are_refused(space, others, tmp_path):
    """Their numbers are in the same places of a row, and mean something else."""
    run = proximo.train("ppo", lambda: Seeing(space), run_dir=str(tmp_path / "run"), **VALUES)
    for other in others:
        with pytest.raises(UsageError, match="The environment has observations float32 of shape .*Use the environment of the run"):
            proximo.evaluate(run, 2, env=partial(Seeing, other))
        with pytest.raises(UsageError, match="The environment has observations float32 of shape .*Use the environment of the run"):
            proximo.resume(run, env=partial(Seeing, other), total_timesteps=640)
    assert proximo.evaluate(run, 2, env=lambda: Seeing(space)).returns == [10.0, 10.0]


@pytest.mark.parametrize("distribution", ["gaussian", "squashed"])
def test_a_resume_keeps_the_bounds_of_actions(distribution, tmp_path, capsys):
    """An action of `squashed` is a fraction of its bounds; others are only clipped."""
    def acting(bound):
        return lambda: Seeing(gymnasium.spaces.Box(-1, 1, (3,)), gymnasium.spaces.Box(-bound, bound, (2,)))

    run = proximo.train("ppo_continuous_action", acting(1), run_dir=str(tmp_path / "run"), distribution=distribution, **VALUES)
    if distribution == "squashed":
        with pytest.raises(UsageError, match="distribution=squashed scales actions to their bounds"):
            proximo.resume(run, acting(100), total_timesteps=640)
        assert proximo.resume(run, acting(1), total_timesteps=640) == run
    else:
        proximo.resume(run, acting(100), total_timesteps=640)
        assert "Actions are clipped to the new bounds" in capsys.readouterr().err


def test_parts_are_checked_before_training_together_with_the_configuration(tmp_path):
    wrong = {"make_agent": "net", "loss_fn": 3, "callbacks": print, "gamma": 3, "update_epochs": 0}
    for call in (proximo.train, proximo.iterations):
        given = wrong if call is proximo.train else {name: x for name, x in wrong.items() if name != "callbacks"}
        with pytest.raises(UsageError) as error:
            call("ppo", run_dir=str(tmp_path / "run"), **VALUES | given)
        assert all(any(line.startswith(name) for line in str(error.value).splitlines()) for name in given)
    with pytest.raises(UsageError, match="make_agent returned None, which lacks recurrent, .* of Agent"):
        proximo.train("ppo", make_agent=lambda spec, cfg: None, run_dir=str(tmp_path / "run"), **VALUES)
    assert not (tmp_path / "run" / "config.json").exists()


def test_a_refused_call_leaves_the_random_numbers_of_torch_as_they_were(tmp_path):
    before = torch.get_rng_state()
    with pytest.raises(UsageError, match="loss_fn=3 is not a function"):  # a network is made, to find what else is wrong
        proximo.train("ppo", loss_fn=3, run_dir=str(tmp_path / "run"), **VALUES)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("call", [proximo.train, proximo.iterations])
@pytest.mark.parametrize("fields, sentence", [
    ({"env": np.zeros(2)}, r"env=array\(\[0\., 0\.\]\) is not an environment"),
    ({"env_file": 3}, r"env_file=3 is not allowed\. Use text\."), ({"env_file": np.zeros(2)}, "env_file=array.* is not allowed"),
    ({"env_file": "x" * 5000}, "^env_file=.*xxx does not exist"), ({"env_file": "x" * 5000 + ".py"}, r"x\.py does not exist"),
    ({"env_id": "CartPole-v1", "hidden_sizes": torch.zeros(2, device="meta")}, "hidden_sizes=.* is not allowed"),
    ({"env_id": "CartPole-v1", "total_timesteps": 10**400}, "total_timesteps=10* must be between 1 and 9223372036854775807")])
def test_arguments_of_other_kinds_are_named(call, fields, sentence):
    with pytest.raises(UsageError, match=sentence):
        next(iter(call(**fields)))


@pytest.mark.parametrize("config, sentence", [
    (3, "config=3 is not a class of configurations"), ("ppo", "config='ppo' is not a class"),
    (Config(), "is not a class of configurations"),
    (RPO, "config=RPO belongs to rpo_continuous_action, and .* was trained with ppo")])
def test_a_resume_takes_the_class_of_the_run_only(config, sentence, tmp_path):
    run = proximo.train(cfg(tmp_path / "run", total_timesteps=64))
    with pytest.raises(UsageError, match=sentence):
        proximo.resume(run, config=config, total_timesteps=128)


def test_all_problems_of_a_resume_come_at_once(tmp_path):
    run = proximo.train(cfg(tmp_path / "run", total_timesteps=64))
    with pytest.raises(UsageError) as types:
        proximo.resume(run, foo=1, gamma="a", learning_rate=lambda left: left)
    assert {line.split()[0].split("=")[0] for line in str(types.value).splitlines()} == {"foo", "gamma", "learning_rate"}
    with pytest.raises(UsageError) as values:
        proximo.resume(run, gamma=3, seed=2)
    assert [line.split("=")[0] for line in str(values.value).splitlines()] == ["gamma", "seed"]


@pytest.mark.parametrize("state", [3, {}, {"iteration": 2}, {"weights": np.zeros(3)}])
def test_only_a_snapshot_continues_a_training(state):
    """Training began with the first iteration where it was empty."""
    with pytest.raises(UsageError, match="is not a snapshot"):
        proximo.iterations("ppo", state=state)


def test_a_snapshot_without_normalisation_continues_without():
    training = proximo.iterations(CFG)
    snapshot = next(training).snapshot()
    training.close()
    with pytest.raises(UsageError, match="without normalisation.*norm_obs=True"):
        proximo.iterations(CFG, state=snapshot, norm_obs=True)
    assert [it.iteration for it in proximo.iterations(CFG, state=snapshot, total_timesteps=96)] == [2, 3]


@pytest.mark.parametrize("framework", ["torch", "jax"])
def test_a_snapshot_refuses_what_a_resume_cannot_change(framework):
    """JAX ran on with the weights of another seed; torch gave KeyError for other numbers of environments."""
    training = proximo.iterations(CFG, framework=framework)
    snapshot = next(training).snapshot()
    training.close()
    other = "jax" if framework == "torch" else "torch"
    for changes in ({"num_envs": 8, "seed": 9}, {"num_steps": 64}, {"framework": other}, {"hidden_sizes": (32,)}):
        with pytest.raises(UsageError) as error:
            proximo.iterations(CFG, **{"framework": framework} | changes, state=snapshot)
        assert {line.split("=")[0] for line in str(error.value).splitlines()} == {*changes}
    free = {"learning_rate": 1e-4, "run_dir": "elsewhere"}
    assert next(proximo.iterations(CFG, framework=framework, state=snapshot, **free)).iteration == 2


def test_the_home_folder_is_found_under_its_short_name(tmp_path, monkeypatch):
    """A folder with the name ~ was made in the working folder."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    run = proximo.train(cfg("~/run", total_timesteps=64))
    assert run == tmp_path / "run" and not (tmp_path / "~").exists()
    assert proximo.train(cfg("~/run", total_timesteps=64), resume="auto") == run
    assert proximo.resume("~/run", total_timesteps=96) == run
    proximo.load("~/run")


class Wandering(gymnasium.Wrapper):
    """Changes the current folder, as some simulators do."""

    def reset(self, **options):
        os.chdir("/")
        return super().reset(**options)


def test_the_result_is_found_where_an_environment_changes_the_folder(tmp_path, monkeypatch):
    """It was a relative path: proximo.load found no run there."""
    monkeypatch.chdir(tmp_path)
    run = proximo.train(cfg("run", total_timesteps=64), env=lambda: Wandering(gymnasium.make("CartPole-v1")))
    assert os.getcwd() == "/" and run == tmp_path / "run"
    proximo.load(run)


def test_files_in_the_home_folder_are_found(tmp_path, monkeypatch):
    """As run_dir is; what a resume is given is recorded as an absolute path."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "corridor.py").write_text("import tests.test_api\n\n\nclass Hall(tests.test_api.Corridor):\n    pass\n")
    trained = proximo.train(env_file="~/corridor.py", run_dir="first", **VALUES | {"total_timesteps": 64})
    assert json.loads((trained / "config.json").read_text())["config"]["env_file"] == str(tmp_path / "corridor.py")
    assert train("~/second", "--env-file=~/corridor.py", "--init-from=~/first", "--total-timesteps", "64") == 0
    settings = json.loads((tmp_path / "second" / "config.json").read_text())["config"]
    assert (settings["env_file"], settings["init_from"]) == (str(tmp_path / "corridor.py"), str(tmp_path / "first"))
    assert with_changes(CFG, {"init_from": "first"}).init_from == str(tmp_path / "first")


def test_a_preset_is_named_by_text():
    with pytest.raises(UsageError, match="There is no preset 3"):
        proximo.preset(3)


def test_arguments_of_stable_baselines3_are_explained(tmp_path):
    model = proximo.load(proximo.train(cfg(tmp_path / "run", total_timesteps=64)))
    with pytest.raises(UsageError, match="predict has no argument state, episode_start.*first=True or reset"):
        model.predict(np.zeros(4, np.float32), state=None, episode_start=[True])


def test_a_folder_with_bytes_that_are_no_text(tmp_path):
    """Names of files on Linux may have any bytes; Python shows those that are not UTF-8 as surrogates.

    In a process of its own: pytest-xdist cannot pass its messages on.
    """
    program = ("import sys, proximo\nfolder = sys.argv[1]\n"
               "proximo.train('ppo', run_dir=folder, num_envs=2, num_steps=16, num_minibatches=1, total_timesteps=64)\n"
               "assert str(proximo.resume(folder, total_timesteps=128)) == folder\n"
               "assert proximo.load(folder).act([0.0] * 4) in (0, 1)")
    done = subprocess.run([sys.executable, "-c", program, os.path.join(tmp_path, os.fsdecode(b"\xff"))],
                          capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode(errors="replace")


def test_wrappers_are_named_as_texts(tmp_path):
    """A class is refused with the text that names it, which works; a text in place of a list is one problem."""
    wrapper = gymnasium.wrappers.RecordEpisodeStatistics
    with pytest.raises(UsageError, match="Write it as the text 'gymnasium.wrappers.*:RecordEpisodeStatistics'") as error:
        proximo.train("ppo", env_wrappers=[wrapper], run_dir=str(tmp_path / "run"), **VALUES)
    text = str(error.value).partition("the text '")[2].partition("'")[0]
    with pytest.raises(UsageError, match="is one text. Write a list: env_wrappers=") as error:
        proximo.train(env_id="CartPole-v1", env_wrappers=text, run_dir=str(tmp_path / "run"), **VALUES)
    assert len(str(error.value).splitlines()) == 1
    with pytest.raises(UsageError, match="^env_kwargs='size=5' is one text. Write a dict: env_kwargs={'size': 5}.$"):
        proximo.train(env_id="CartPole-v1", env_kwargs="size=5", run_dir=str(tmp_path / "run"), **VALUES)
    proximo.train("ppo", env_wrappers=[text], run_dir=str(tmp_path / "run"), **VALUES)


def test_a_run_in_an_environment_of_its_own_resumes_and_is_evaluated_with_it(tmp_path, monkeypatch, capsys):
    whole, halves = tmp_path / "whole", tmp_path / "halves"
    proximo.train(env=Corridor, run_dir=str(whole), **VALUES)
    at_iteration(monkeypatch, 5, terminate)
    with pytest.raises(KeyboardInterrupt):
        proximo.train(env=Corridor, run_dir=str(halves), **VALUES)
    assert f"Resume with: proximo.resume('{halves}', env=...)" in capsys.readouterr().err
    for refused in (lambda: proximo.resume(halves), lambda: proximo.evaluate(halves, episodes=2)):
        with pytest.raises(UsageError, match=r"env=\.\.\."):
            refused()
    assert main(["eval", str(halves)]) == 2 and "proximo.evaluate(" in capsys.readouterr().err
    assert proximo.resume(halves, env=Corridor) == halves
    assert same_weights(whole, halves) and same_logs(whole, halves)
    found = proximo.evaluate(halves, episodes=8, env=lambda: Corridor(3), deterministic=False)
    assert len(found.returns) == 8 and set(found.returns) == {1.0} and min(found.lengths) >= 3
    assert proximo.evaluate(proximo.load(halves), 8, Corridor(3), deterministic=False) == found


def test_environments_in_worker_processes(tmp_path):
    """Functions travel to other processes, and give the same weights there."""
    folder = proximo.train(env=lambda: Corridor(), run_dir=str(tmp_path / "run"), **VALUES)
    proximo.train(env=lambda: Corridor(), env_workers=2, run_dir=str(tmp_path / "workers"), **VALUES)
    assert same_weights(folder, tmp_path / "workers")


class Locked(Corridor):
    def __deepcopy__(self, memo):
        raise TypeError("cannot pickle '_thread.lock' object")


SHARED = Corridor()


@pytest.mark.parametrize(("env", "sentence"), [
    (Locked(), "cannot be copied .TypeError: cannot pickle '_thread.lock' object.* env=lambda: MyEnv()"),
    (lambda: SHARED, "returned the same environment twice. It must make a new one at each call"),
    (lambda: "CartPole-v1", "made a str; a gymnasium.Env is needed"),
    (SimpleNamespace(num_envs=2), "is a vector of environments. Pass a function that makes one"),  # those of other libraries
    (gymnasium.make_vec("CartPole-v1", 2), r"is a vector of environments. Pass a function that makes one.*\(make_envs=lambda cfg, seeds:"),
    (lambda: gymnasium.make_vec("CartPole-v1", 2), r"made a CartPoleVectorEnv; a gymnasium.Env is needed\. A VectorEnv is passed as "),
    (3, "env=3 is not an environment. Pass the id of an environment, a function")])
def test_environments_that_cannot_be_used_are_refused(env, sentence, tmp_path):
    with pytest.raises(UsageError, match=sentence):
        proximo.train(env=env, run_dir=str(tmp_path / "run"), **VALUES)
    assert not (tmp_path / "run").exists()


def test_a_factory_that_fails_is_an_environment_at_fault(tmp_path):
    def broken():
        raise OSError("no robot on this port")

    with pytest.raises(EnvError, match="could not be made: OSError: no robot on this port"):
        proximo.train("ppo", env=broken, run_dir=str(tmp_path / "run"), **VALUES)
    with pytest.raises(UsageError, match="env and make_envs were both given"):
        proximo.train(env=Corridor, make_envs=print)
    with pytest.raises(UsageError, match="env='A-v0' and env_id='B-v0' were both given"):
        proximo.train(env="A-v0", env_id="B-v0")


def test_evaluation_from_python_equals_the_command(tmp_path, capsys):
    folder = proximo.train(cfg(tmp_path / "run"))
    assert main(["eval", str(folder), "--episodes", "4", "--deterministic", "--json", str(tmp_path / "eval.json")]) == 0
    found = proximo.evaluate(folder, episodes=4)
    assert found.returns == json.loads((tmp_path / "eval.json").read_text())["returns"]
    assert proximo.evaluate(proximo.load(folder), episodes=4) == found
    assert proximo.evaluate(folder, 4, "CartPole-v1") == found
    with pytest.raises(UsageError, match="there is no such folder"):
        proximo.evaluate(tmp_path / "nothing")


@pytest.mark.parametrize("env", ["CartPole-v1", Corridor, Corridor(), lambda: Corridor()])
def test_environments_are_checked(env):
    findings = proximo.check_env(env)
    assert findings and not [finding for finding in findings if finding.ok is False]


def test_from_python_only_warnings_are_printed(tmp_path):
    """In a process of its own, where no command line has configured the logger."""
    script = f"import proximo\nfrom proximo import Config\nproximo.train({cfg(tmp_path / 'run', total_timesteps=64)!r})"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=200)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_the_package_is_light():
    """Nothing but the standard library is imported before something is called."""
    heavy = {"numpy", "torch", "jax", "gymnasium", "tyro", "rich"}
    script = f"import sys, proximo; print(sorted({heavy} & {{*sys.modules}}))"
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, text=True).stdout == "[]\n"
    assert all(hasattr(proximo, name) for name in proximo.__all__)


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


def test_the_loop_is_an_ordinary_generator(tmp_path, monkeypatch):
    """Stop when you like, continue from a snapshot; nothing is written and nothing watches."""
    monkeypatch.chdir(tmp_path)
    whole = [it.stats["losses/value_loss"] for it in proximo.iterations(CFG)]
    snapshot, first = None, []
    for it in proximo.iterations(CFG):
        first.append(it.stats["losses/value_loss"])
        if it.iteration == 4:
            snapshot = it.snapshot()
            break
    rest = [it.stats["losses/value_loss"] for it in proximo.iterations(CFG, state=snapshot)]
    assert len(whole) == 10 and first + rest == whole and list(tmp_path.iterdir()) == []
    for wrong in ({"gamma": 2.0}, {"num_seeds": 2, "framework": "jax"}, {"gama": 0.9}):
        with pytest.raises(UsageError):
            proximo.iterations(CFG, **wrong)


def test_threads_of_a_loop_with_worker_processes_wait_without_spinning(monkeypatch):
    """As those of train: torch reads the variable when it is imported."""
    monkeypatch.setenv("OMP_WAIT_POLICY", "")
    monkeypatch.delenv("OMP_WAIT_POLICY")
    proximo.iterations(CFG, env_workers=2, threads=2).close()
    assert os.environ["OMP_WAIT_POLICY"] == "PASSIVE"


def test_a_run_of_a_command_with_worker_processes_continues_from_python(tmp_path):
    """A call that leaves env_workers open keeps those of the run; a number is compared with it."""
    assert train(tmp_path / "run", "--env-workers", "2") == 0
    fields = {**CFG.__dict__, "env_workers": None}
    proximo.train(Config(**fields | {"run_dir": str(tmp_path / "run"), "total_timesteps": 352}), resume="auto")
    config = json.loads((tmp_path / "run" / "config.json").read_text())["config"]
    assert config["env_workers"] == 2 and config["total_timesteps"] == 352
    with pytest.raises(UsageError, match="env_workers=0 was given, but the run has env_workers=2"):
        proximo.train(Config(**fields | {"run_dir": str(tmp_path / "run"), "env_workers": 0}), resume="auto")


def test_a_program_may_end_in_the_middle_of_a_loop():
    """The interpreter closes the generator, and with it the environments, while it ends."""
    script = ("import proximo; loop = proximo.iterations('ppo', num_envs=1, num_steps=32, total_timesteps=320, threads=1);"
              "next(loop)")
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_videos_from_python(tmp_path):
    """At checkpoints and at the end, as --capture-video makes them."""
    folder = proximo.train(cfg(tmp_path / "run", capture_video=True, total_timesteps=96))
    assert [path.name for path in sorted((folder / "videos").glob("*.mp4"))] == ["step-000000096.mp4"]


def test_another_name_for_an_environment_is_said(tmp_path, caplog):
    """The run was recorded, plotted and compared as CartPole-v1 without a word."""
    folder = proximo.train(env=lambda: gymnasium.make("Acrobot-v1"), env_id="CartPole-v1", run_dir=tmp_path / "run",
                           total_timesteps=512, logger="none")
    assert "The run is recorded as CartPole-v1, and the environment that it trains is" in caplog.text
    assert proximo.load(folder).cfg.env_id == "CartPole-v1"


@pytest.mark.parametrize("recurrent", ["none", "lstm"])
def test_a_recurrent_layer_that_a_network_of_ones_own_lacks_is_told(tmp_path, caplog, recurrent):
    """The network is that of the program, whatever the field says."""
    warn_once.cache_clear()
    proximo.train(cfg(tmp_path / "run", recurrent=recurrent), make_agent=tiny_agent)
    assert ("recurrent=lstm has no effect, because the network that make_agent returned is not recurrent" in caplog.text) == (
        recurrent == "lstm")
