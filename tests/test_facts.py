"""Facts of the fields against what was decided for each; every field on resume; types of values given from Python."""

import ast
import json
import shutil
from dataclasses import dataclass, fields, replace
from itertools import pairwise
from pathlib import Path
from types import NoneType
from typing import Literal, get_args, get_origin, get_type_hints

import numpy as np
import pytest
import torch

import proximo
from proximo.catalog import VARIANTS
from proximo.cli.main import main
from proximo.config import Config
from proximo.errors import UsageError
from proximo.facts import (
    FROM_THIS_ONE,
    Facts,
    auto_selects_gpu,
    converted,
    facts,
    facts_of_all,
    fixed_on_resume,
    options_of,
    refused_changes,
    setting,
    shown,
    type_problems,
)
from proximo.problems import config_problems
from proximo.variants import RPO, Atari, Compact, Procgen
from tests.support.runs import train

FREE = {
    "total_timesteps", "learning_rate", "anneal_lr", "adam_eps", "gamma", "gae_lambda", "bootstrap_truncated",
    "num_minibatches", "update_epochs", "norm_adv", "clip_coef", "anneal_clip", "clip_vloss", "ent_coef", "anneal_ent", "vf_coef",
    "max_grad_norm", "desired_kl", "target_kl", "rpo_alpha", "checkpoint_every", "exp_name", "log_every", "keep_checkpoints", "require_same_cpu", "logger", "track",
    "wandb_project_name", "wandb_entity", "capture_video", "eval_every", "eval_episodes", "eval_num_envs", "eval_max_steps", "eval_env_kwargs", "info_metrics", "record_video_step_frequency", "env_timeout", "device_ids",
    "collective_timeout", "restart_envs"}


def another(cfg, name):
    """A value of the field's type that it does not have."""
    value, hint = getattr(cfg, name), get_type_hints(type(cfg))[name]
    if get_origin(hint) is Literal:
        return next(choice for choice in get_args(hint) if choice != value)
    if bool in options_of(hint):
        return not value
    if get_origin(hint) is tuple:
        return ("a=b:C",) if hint == tuple[str, ...] else (3, 5)
    return f"{value}x" if isinstance(value, str) else 1 if value is None else value + 1


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_field_of_every_variant_on_resume(variant):
    """Against the decisions above, through JSON as saved: a fixed field is refused in one line, a free one accepted."""
    cfg = VARIANTS[variant].config()
    recorded = json.loads(json.dumps(fixed_on_resume(cfg)))
    assert refused_changes(cfg, recorded) == []
    for name in facts(VARIANTS[variant].config):
        changed = replace(cfg, **{name: another(cfg, name)})
        assert refused_changes(changed, recorded) == ([] if name in FREE else [
            f"{name}={shown(getattr(changed, name))} was given, but the run has {name}={shown(getattr(cfg, name))} and a "
            f"resume cannot change it. Start a new run{FROM_THIS_ONE * (facts(cfg)[name].group != 'policy')}."])


def test_a_script_may_have_moved():
    """A resume takes a path of the same file name, and no other script."""
    recorded = fixed_on_resume(Config(env_file="/there/shop.py"))
    assert recorded["env_file"] == "/there/shop.py"
    assert refused_changes(Config(env_file="/here/shop.py"), recorded) == []
    for other in ("/there/store.py", ""):
        assert len(refused_changes(Config(env_file=other), recorded)) == 1
    assert len(refused_changes(Config(env_file="/here/shop.py"), fixed_on_resume(Config()))) == 1


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("finished") / "run"
    assert train(folder, "--total-timesteps", "64") == 0
    return folder


@pytest.mark.parametrize("name", facts(Config))
def test_a_run_goes_on_with_every_free_field_changed_and_refuses_the_others(name, finished, tmp_path, capsys):
    """The commands themselves: two more iterations, or exit code 2 and a folder as it was."""
    if name in ("device_ids", "track", "restart_envs", "eval_env_kwargs"):
        pytest.skip("needs a GPU, Weights & Biases, worker processes or evaluations")
    cfg = Config(**json.loads((finished / "config.json").read_text())["config"])
    value = {"total_timesteps": 128, "logger": "none", "num_minibatches": 1, "gamma": 0.5, "gae_lambda": 0.5,
             "device": "cpu", "engine": "gym", "env_file": "/other.py", "init_from": "/other"}.get(name, another(cfg, name))
    shutil.copytree(finished, tmp_path / "run")
    before = {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()}
    words = ["--total-timesteps", "128"] * (name != "total_timesteps") + [f"--{name}={shown(value)}"]
    code = main(["resume", str(tmp_path / "run"), *words])
    said = capsys.readouterr().err
    assert code == (0 if name in FREE else 2), said
    if name in FREE:
        assert json.loads((tmp_path / "run" / "summary.json").read_text())["steps"] == 128
    else:
        assert any(line.startswith((f"proximo: {name}={shown(value)}", f"proximo: num_seeds={value}"))
                   for line in said.splitlines())
        assert {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()} == before


def test_a_subclass_that_changes_a_default_keeps_the_facts():
    @dataclass(frozen=True)
    class Mine(Config):
        clip_coef: float = 0.05
        gamma: float = setting(0.5, minimum=0.25)

    assert facts(Mine)["clip_coef"] == facts(Config)["clip_coef"] == facts(Mine())["clip_coef"]
    assert facts(Mine)["gamma"] == facts(Config)["gamma"]._replace(minimum=0.25) and Mine().gamma == 0.5
    assert config_problems(Mine(gamma=0.2)) == ["gamma=0.2 must be between 0.25 and 1"]
    assert list(facts(Mine)) == [f.name for f in fields(Mine)]


def test_a_range_may_have_one_end():
    @dataclass(frozen=True)
    class Mine(Config):
        least: int = setting(1, minimum=1)
        most: float = setting(0.5, maximum=1)
        both: float = setting(0.5, above=0, maximum=1)

    assert config_problems(Mine()) == config_problems(Mine(most=-5.0)) == []
    assert config_problems(Mine(least=0, most=2.0, both=1.5)) == [
        "least=0 must be at least 1", "most=2.0 must be at most 1", "both=1.5 must be at most 1"]
    assert config_problems(Mine(both=0.0)) == ["both=0.0 must be above 0"]


def test_fields_of_a_users_own_class_need_no_facts():
    """Without any they are fixed on resume, and a type that is not one of ours is left alone."""
    @dataclass(frozen=True)
    class Mine(Config):
        alpha: float = 0.5
        layers: dict[str, int] | None = None

    cfg = Mine(alpha=1, layers={"a": 1})
    assert facts(Mine)["alpha"] == Facts() and config_problems(cfg) == [] and cfg.resolved() == cfg
    assert config_problems(Mine(alpha="1")) == ["alpha='1' is not allowed. Use a number."]
    assert len(refused_changes(cfg, fixed_on_resume(Mine()))) == 2


def test_an_unknown_fact_is_an_error():
    @dataclass(frozen=True)
    class Mine(Config):
        extra: int = setting(1, group="training", minimun=1)

    with pytest.raises(TypeError, match="minimun"):
        facts(Mine)


def test_facts_of_all_prefers_the_first_class():
    assert facts_of_all([Config, Compact])["norm_obs"] == facts(Config)["norm_obs"]
    assert {"noop_max", "num_levels", "clip_coef"} <= facts_of_all([Config, Atari, Procgen]).keys()


@pytest.mark.parametrize("path", ["proximo/config.py", "proximo/variants.py"])
def test_every_declared_field_is_explained_in_one_line(path):
    """The line below it, which --help shows: no stop at its end, no second line that the help would break."""
    for node in ast.parse(Path(path).read_text()).body:
        body = node.body if isinstance(node, ast.ClassDef) else []
        for one, after in pairwise(body):
            if isinstance(one, ast.AnnAssign) and isinstance(one.value, ast.Call) and ast.unparse(
                    one.value.func) == "setting":
                text = after.value.value if isinstance(after, ast.Expr) else ""
                assert text and "\n" not in text and not text.endswith("."), ast.unparse(one.target)


def test_ablations_and_ranges_name_values_of_the_fields():
    for kind, *_ in VARIANTS.values():
        for name, fact in facts(kind).items():
            assert fact.ablated is ... or converted(fact.ablated, get_type_hints(kind)[name]) == fact.ablated
            assert fact.group in get_args(Facts.__annotations__["group"])


@pytest.mark.parametrize(("value", "hint", "expected"), [
    (3, int, 3), (1e3, int, 1000), (np.int64(3), int, 3), (np.float64(4.0), int, 4), (2**62 + 1, int, 2**62 + 1),
    (torch.tensor(5), int, 5), (1, float, 1.0), (np.float32(0.5), float, 0.5), (True, bool, True),
    (np.bool_(False), bool, False), (None, bool | None, None), (Path("a/b"), str, "a/b"), (np.str_("x"), str, "x"),
    ({"a": 1, "b": "1"}, tuple[str, ...], ("a=1", "b='1'")), (["a"], tuple[str, ...], ("a",)), ([0, 1], tuple[int, ...], (0, 1)), ((np.int32(1),), tuple[int, ...], (1,)), ("cnn", Literal["mlp", "cnn"], "cnn"),
    (np.array([64, 32]), tuple[int, ...], (64, 32)), (range(2, 4), tuple[int, ...], (2, 3)), (torch.tensor([7]), tuple[int, ...], (7,))])
def test_harmless_types_are_converted(value, hint, expected):
    found = converted(value, hint)
    assert found == expected and type(found) is type(expected)
    assert not isinstance(found, tuple) or all(type(x) in (int, str) for x in found)


@pytest.mark.parametrize(("value", "hint"), [
    ("3", int), (1.5, int), (float("nan"), int), (float("inf"), int), (True, int), (True, float), ("1e-3", float),
    (None, float), (1, bool), ("yes", bool), (3, str), (None, str), ("big", Literal["mlp", "cnn"]),
    (["0"], tuple[int, ...]), (3, tuple[int, ...]), (np.ones(2), float), (np.ones((2, 2)), tuple[int, ...]), (lambda: 1, float | NoneType)])
def test_other_types_are_not(value, hint):
    with pytest.raises(TypeError):
        converted(value, hint)


def test_each_wrong_type_is_one_sentence_and_comes_before_anything_is_made(tmp_path):
    cfg = Config(learning_rate="1e-3", num_envs=4.5, env_id=object(), model="resnet", run_dir=str(tmp_path / "run"))
    problems = type_problems(cfg)
    assert problems == config_problems(cfg) and len(problems) == 4
    assert problems[1] == "num_envs=4.5 is not allowed. Use a whole number."
    assert "model='resnet' is not allowed. Use one of mlp, cnn, impala." in problems
    assert "learning_rate='1e-3' is not allowed. Use a number." in problems
    assert problems[0].startswith("env_id=<object object") and problems[0].endswith("is not allowed. Use text.")
    with pytest.raises(UsageError, match="learning_rate='1e-3' is not allowed"):
        proximo.train(cfg)
    with pytest.raises(UsageError, match="rpo_alpha='a' is not allowed"):
        proximo.train(RPO(rpo_alpha="a", env_id=None, run_dir=str(tmp_path / "run")))
    assert not (tmp_path / "run").exists()


def test_a_run_with_harmless_types_is_recorded_with_plain_ones(tmp_path):
    cfg = Config(seed=np.int64(3), num_envs=2.0, num_steps=16, total_timesteps=6.4e1, learning_rate=np.float32(0.5),
                 run_dir=tmp_path / "run", hidden_sizes=(8, 8), num_minibatches=2, logger="none")
    assert config_problems(cfg.resolved()) == [] == config_problems(cfg)
    proximo.train(cfg)
    recorded = json.loads((tmp_path / "run" / "config.json").read_text())["config"]
    assert (recorded["seed"], recorded["num_envs"], recorded["total_timesteps"], recorded["learning_rate"],
            recorded["run_dir"]) == (3, 2, 64, 0.5, str(tmp_path / "run"))
    with pytest.raises(UsageError, match="gama is not a field of this variant. Did you mean gamma?"):
        proximo.resume(tmp_path / "run", gama=0.9)


@pytest.mark.parametrize(("changes", "reason"), [
    ({}, "CPU: no convolutions, and num_envs=4 is below 1024."),
    ({"hidden_sizes": (4096, 4096), "num_envs": 1023},
     "CPU: no convolutions, and num_envs=1023 is below 1024."),
    ({"num_envs": 1024}, "GPU: num_envs=1024 is at least 1024."),
    ({"model": "cnn"}, "GPU: the network has convolutions."),
    ({"model": "impala", "num_envs": 4096}, "GPU: the network has convolutions."),
])
def test_device_auto_says_what_has_decided(changes, reason, caplog):
    """The message names the reason, and only where there is a choice."""
    caplog.set_level("INFO", "proximo")
    cfg = replace(Config(), **changes)
    assert auto_selects_gpu(cfg, present=True) == reason.startswith("GPU")
    assert caplog.messages == [f"--device auto selects the {reason}"]
    assert not auto_selects_gpu(cfg, present=False) and len(caplog.messages) == 1
