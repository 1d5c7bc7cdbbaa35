"""Command lines in the spellings that tyro, argparse and other implementations of PPO accept, and every mistake."""

from dataclasses import fields

import pytest

from proximo.cli import flags
from proximo.cli.bench_commands import _parse_flags
from proximo.cli.flags import parse_flags
from proximo.config import Config
from proximo.errors import UsageError
from proximo.variants import RPO, Atari, Compact, Procgen


@pytest.mark.parametrize("words,expected", [
    ("--num-envs 8", {"num_envs": 8}), ("--num_envs=8", {"num_envs": 8}), ("--total-timesteps 1e6",
                                                                         {"total_timesteps": 1_000_000}),
    ("--total-timesteps 2_000", {"total_timesteps": 2000}), ("--learning-rate 2.5e-4", {"learning_rate": 2.5e-4}),
    ("--lr=1e-3", {"learning_rate": 1e-3}), ("--anneal-lr False", {"anneal_lr": "none"}),
    ("--anneal-lr", {"anneal_lr": "linear"}), ("--no-anneal-lr", {"anneal_lr": "none"}),
    ("--anneal-lr=cosine", {"anneal_lr": "cosine"}), ("--anneal-clip True", {"anneal_clip": "linear"}),
    ("--no-cuda --track", {"cuda": False, "track": True}), ("--cuda=False", {"cuda": False}),
    ("--capture_video --seed 3", {"capture_video": True, "seed": 3}), ("--target-kl 0.01", {"target_kl": 0.01}),
    ("--target-kl None", {"target_kl": None}), ("--norm-adv", {"norm_adv": "minibatch"}),
    ("--norm-adv True", {"norm_adv": "minibatch"}), ("--norm-adv False", {"norm_adv": "none"}),
    ("--no-norm-adv", {"norm_adv": "none"}), ("--norm-adv=batch", {"norm_adv": "batch"}),
    ("--device-ids 0 0 1 1 --seed 2", {"device_ids": (0, 0, 1, 1), "seed": 2}), ("--device-ids=0,1",
                                                                               {"device_ids": (0, 1)}),
    ("--device-ids [0, 1]", {"device_ids": (0, 1)}), ("--env CartPole-v1", {"env_id": "CartPole-v1"}),
    ("--ENV_NAME=CartPole-v1", {"env_id": "CartPole-v1"}), ("--seed 1 --seed 2", {"seed": 2}),
    ("--exp-name=a=b", {"exp_name": "a=b"}), ("--env-kwargs a=1 b=x --env-kwargs=c=d=e", {"env_kwargs": ("a=1", "b=x", "c=d=e")}),
    ("--env-wrapper a:B c:D", {"env_wrappers": ("a:B", "c:D")}), ("--wandb-entity --track", UsageError), ("", {}),
    ("--local-num-envs none", {"local_num_envs": None})])
def test_spellings(words, expected):
    if expected is UsageError:
        with pytest.raises(UsageError, match="--wandb-entity needs a value"):
            parse_flags(Config, words.split())
    else:
        assert parse_flags(Config, words.split()) == expected


def test_the_types_of_fields_are_read_once_per_command(monkeypatch):
    """Once for each field took 41 ms of every command, and 10 s of a sweep with 256 runs."""
    read, calls = flags.field_types, []
    monkeypatch.setattr(flags, "field_types", lambda kind: calls.append(kind) or read(kind))
    assert flags.read_flags(Config, ["--seed", "3", "--num-envs", "2"]) == ({"seed": 3, "num_envs": 2}, [])
    assert calls == [Config]


def test_a_number_keeps_its_last_digit():
    """Seeds above 2**53 are not rounded through a float."""
    assert parse_flags(Config, ["--seed", str(2**62 + 1)]) == {"seed": 2**62 + 1}


@pytest.mark.parametrize("words,sentence", [
    ("--num-env 8", "--num-env is not a flag of this variant. Did you mean --num-envs"),
    ("--noop-max 4", "--noop-max is not a flag of this variant. It is a setting of ppo_atari, ppo_atari_lstm and 6 more."),
    ("--n-steps 4", "--n-steps is not a flag of this variant. Use --num-steps (docs/coming-from.md)."),
    ("--seeds 3", "Use --seed or --num-seeds; proximo sweep takes several: --seeds 1 2 3."), ("--net-arch 8", "Use --hidden-sizes 64 64 ("),
    ("--initializer x", "Use --no-orthogonal-init ("), ("--horizon 9", "use --env-kwargs max_episode_steps=N ("),
    ("--restore x", "proximo resume RUN continues a run, and --init-from RUN begins"), ("--policy x", "Use --model mlp, cnn or impala, or make_agent"),
    ("--batch_size=64", "num_envs * num_steps / num_minibatches rows"), ("--popart", "Use --norm-value, which"),
    ("--foo", "--foo is not a flag of this variant. --help-all lists all flags."),
    ("8", "unexpected argument '8'"), ("--num-envs 8 9", "'9'; --num-envs takes one value."),
    ("--seed 1 Acrobot-v1", "did you mean --env-id Acrobot-v1"), ("--no-anneal-lr 0", "--no-anneal-lr takes no value"),
    ("--seed 1.5", "--seed 1.5 is not allowed. Use a whole number."), ("--seed nan", "--seed nan is not allowed. Use a whole"),
    ("--seed inf", "--seed inf is not allowed. Use a whole"), ("--gamma high", "--gamma high is not allowed. Use a number"),
    ("--track maybe", "--track maybe is not allowed. Use True or False"), ("--model=big", "Use one of mlp, cnn, impala"),
    ("--target-kl x", "--target-kl x is not allowed. Use a number or None"),
    ("--hidden-sizes=--5", "--hidden-sizes --5 is not allowed. Use whole numbers"), ("--hidden-sizes ²", "² is not allowed"),
    (f"--hidden-sizes {'9' * 5000}", f"{'9' * 60} is not allowed"), (f"--seed {'9' * 5000}", f"--seed {'9' * 60} is not allowed"),
    ("--device-ids 0 one", "--device-ids one is not allowed. Use whole numbers"),
    ("--no-seed", "--no-seed is not a flag"), ("--num-envs", "--num-envs needs a value: a whole number"), ("--", "-- is not a flag"),
    ("--norm-adv sometimes", "Use one of minibatch, batch, none")])
def test_mistakes_are_named(words, sentence):
    with pytest.raises(UsageError) as error:
        parse_flags(Config, words.split())
    assert sentence in str(error.value) and "\n" not in str(error.value)


def test_all_mistakes_are_reported_together():
    with pytest.raises(UsageError) as error:
        parse_flags(Config, ["--num-env", "8", "--gamma", "high", "stray", "--seed", "x", "--track"])
    assert len(str(error.value).splitlines()) == 4


def test_a_flag_whose_default_depends_on_other_fields():
    assert parse_flags(Compact, ["--norm-obs", "none", "--clip-rewards", "--no-norm-reward"]) == {
        "norm_obs": None, "clip_rewards": True, "norm_reward": False}
    assert parse_flags(RPO, ["--rpo-alpha", "0.01"]) == {"rpo_alpha": 0.01}


@pytest.mark.parametrize("kind", [Config, Atari, Compact, Procgen, RPO])
def test_every_flag_can_be_given_its_own_default(kind):
    """Against the dataclass: writing out all defaults gives the same configuration."""
    words = []
    for name, value in ((f.name, f.default) for f in fields(kind)):
        if value not in ((), ""):
            words += [f"--{name.replace('_', '-')}", str(value)]
    assert kind(**parse_flags(kind, words)) == kind()


def test_flags_of_a_benchmark_are_those_of_its_variants():
    """The base class has no rpo_alpha."""
    assert _parse_flags([Config, RPO], ["--rpo-alpha", "0.3"]) == {"rpo_alpha": 0.3}
    with pytest.raises(UsageError, match="--rpo-alphas is not a flag"):
        _parse_flags([Config, RPO], ["--rpo-alphas", "0.3"])
