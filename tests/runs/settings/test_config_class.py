"""Classes of configurations of programs: fields of Proximo keep their types, and what would be ignored is refused."""

from dataclasses import dataclass

import pytest

import proximo
from proximo.cli.flags import parse_flags
from proximo.cli.train_help import flag_helps
from proximo.errors import UsageError
from proximo.facts import field_types
from proximo.runs.settings.config_class import problems_of_class
from proximo.variants import Compact

SMALL = {"num_envs": 2, "num_steps": 16, "num_minibatches": 2, "total_timesteps": 32}


@dataclass(frozen=True)
class AsInCleanRL(proximo.Config):
    anneal_lr: bool = False
    norm_adv: bool = True
    target_kl: float = None
    hidden_sizes: list = (8,)
    total_timesteps: int = 1e6
    own: bool = True


@dataclass(frozen=True)
class Rows(proximo.Config):
    batch_size: int = 0
    num_iterations: int = 0
    ent_coef_at: float = 0.1
    own: int = 0


def test_a_field_with_another_annotation_keeps_the_type_of_proximo():
    """anneal_lr='none' was not allowed, with the advice True or False, because the annotation of the class was read."""
    cfg = AsInCleanRL().resolved()
    found = cfg.anneal_lr, cfg.norm_adv, cfg.target_kl, cfg.hidden_sizes, cfg.total_timesteps
    assert found == ("none", "minibatch", None, (8,), 1_000_000) and type(cfg.total_timesteps) is int
    assert next(proximo.iterations(AsInCleanRL, **SMALL)).steps == 32
    assert next(proximo.iterations(AsInCleanRL(anneal_lr=True), **SMALL)).stats["charts/learning_rate"] > 0
    for name, value, said in (("anneal_lr", "linar", "Use one of none, linear, cosine"), ("target_kl", "x", "Use a number or None")):
        with pytest.raises(UsageError, match=f"{name}='{value}' is not allowed. {said}"):
            proximo.train(AsInCleanRL(**{name: value}), total_timesteps=32)


def test_flags_of_such_a_class_are_those_of_proximo():
    given = parse_flags(AsInCleanRL, ["--anneal-lr", "cosine", "--target-kl", "0.1", "--no-own", "--hidden-sizes", "3", "4"])
    assert given == {"anneal_lr": "cosine", "target_kl": 0.1, "own": False, "hidden_sizes": (3, 4)}
    assert parse_flags(AsInCleanRL, ["--no-anneal-lr"]) == parse_flags(proximo.Config, ["--no-anneal-lr"])
    of_proximo = {one.name: one.flag for one in flag_helps(proximo.Config)}
    assert {one.name: one.flag for one in flag_helps(AsInCleanRL) if one.name != "own"} == of_proximo


def test_a_class_of_proximo_may_change_a_type():
    assert field_types(Compact)["norm_obs"] == bool | None and field_types(proximo.Config)["norm_obs"] is bool


def test_fields_that_would_replace_what_is_computed_are_refused():
    """With batch_size=0 of CleanRL, training divided by zero; with num_iterations=0 it ended at once."""
    with pytest.raises(UsageError) as refused:
        proximo.train(Rows)
    assert [line.partition(". Leave it out.")[::2] for line in str(refused.value).splitlines()] == [
        ("Rows.batch_size is a field, and Config computes batch_size from other fields",
         " A minibatch has num_envs * num_steps / num_minibatches rows: set num_minibatches=... (docs/coming-from.md)."),
        ("Rows.num_iterations is a field, and Config computes num_iterations from other fields",
         " Use total_timesteps=...; an iteration has num_envs * num_steps (docs/coming-from.md)."),
        ("Rows.ent_coef_at is a field, and Config computes ent_coef_at from other fields", "")]
    assert problems_of_class(AsInCleanRL) == problems_of_class(proximo.Config) == []


def test_annotations_that_cannot_be_read_are_those_of_the_program_only():
    """As texts in a function, which from __future__ import annotations makes of them: it was a NameError of Python."""
    class Own:
        pass

    @dataclass(frozen=True)
    class Local(proximo.Config):
        own: "Own | None" = None
        gamma: "float" = 0.9

    assert next(proximo.iterations(Local, **SMALL)).steps == 32
    with pytest.raises(UsageError, match="gamma='high' is not allowed. Use a number"):
        proximo.train(Local(gamma="high"))
