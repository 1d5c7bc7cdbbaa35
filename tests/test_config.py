"""Sizes, schedules and validation of configurations against hand-written values, and the variants' defaults against the
table of published scripts (docs/details.md)."""

import math
import re
from dataclasses import FrozenInstanceError, fields, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proximo.catalog import VARIANTS
from proximo.config import Config
from proximo.problems import config_problems
from proximo.variants import RPO, Atari, BatchedHands, BatchedSim, Compact, Procgen, SelfPlay

# steps, learning rate, envs, steps, minibatches, epochs, clip, entropy
PUBLISHED = {
    "ppo": (500_000, 2.5e-4, 4, 128, 4, 4, 0.2, 0.01), "ppo_atari": (10_000_000, 2.5e-4, 8, 128, 4, 4, 0.1, 0.01),
    "ppo_continuous_action": (1_000_000, 3e-4, 1, 2048, 32, 10, 0.2, 0.0),
    "rpo_continuous_action": (8_000_000, 3e-4, 1, 2048, 32, 10, 0.2, 0.0),
    "ppo_atari_lstm": (10_000_000, 2.5e-4, 8, 128, 4, 4, 0.1, 0.01),
    "ppo_atari_envpool": (10_000_000, 2.5e-4, 8, 128, 4, 4, 0.1, 0.01),
    "ppo_atari_envpool_xla_jax": (10_000_000, 2.5e-4, 8, 128, 4, 4, 0.1, 0.01),
    "ppo_atari_envpool_xla_jax_scan": (10_000_000, 2.5e-4, 8, 128, 4, 4, 0.1, 0.01),
    "ppo_procgen": (25_000_000, 5e-4, 64, 256, 8, 3, 0.2, 0.01),
    "ppo_atari_multigpu": (10_000_000, 2.5e-4, 8, 128, 4, 4, 0.1, 0.01),
    "ppo_pettingzoo_ma_atari": (20_000_000, 2.5e-4, 16, 128, 4, 4, 0.1, 0.01),
    "ppo_continuous_action_isaacgym": (30_000_000, 0.0026, 4096, 16, 2, 4, 0.2, 0.0),
    "ppo_continuous_action_isaacgym_hands": (600_000_000, 0.0026, 8192, 8, 4, 5, 0.2, 0.0),
    "compact": (10_000_000, 2.5e-4, 8, 128, 4, 4, 0.1, 0.01),
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_defaults_are_the_published_ones(variant):
    cfg = VARIANTS[variant].config()
    assert PUBLISHED[variant] == (cfg.total_timesteps, cfg.learning_rate, cfg.num_envs, cfg.num_steps,
                                  cfg.num_minibatches, cfg.update_epochs, cfg.clip_coef, cfg.ent_coef)
    assert config_problems(cfg.resolved()) == []


def test_what_else_differs_between_the_variants():
    assert (Procgen().gamma, Procgen().anneal_lr, Procgen().model) == (0.999, "none", "impala")
    for kind in (BatchedSim, BatchedHands):  # an episode of Brax, 1,000 steps, ends between two rebuilds
        assert kind.checkpoint_every * kind.num_steps >= 1000
    sim = BatchedSim()
    assert (sim.anneal_lr, sim.clip_vloss, sim.vf_coef, sim.max_grad_norm) == ("none", False, 2, 1)
    assert sim.hidden_sizes == (256, 256)
    assert (Atari().gamma, Atari().gae_lambda, Atari().adam_eps, Atari().max_grad_norm) == (0.99, 0.95, 1e-5, 0.5)
    assert not SelfPlay().end_on_life_loss


def test_sizes_and_schedules():
    cfg = Config(num_envs=4, num_steps=128, num_minibatches=4, total_timesteps=5_500)
    assert (cfg.batch_size, cfg.minibatch_size, cfg.num_iterations) == (512, 128, 10)
    assert [cfg.learning_rate_at(i) for i in (1, 6, 10)] == pytest.approx([2.5e-4, 1.25e-4, 2.5e-5])
    assert replace(cfg, anneal_lr="none").learning_rate_at(10) == 2.5e-4
    assert cfg.clip_coef_at(10) == 0.2 and replace(cfg, anneal_clip="linear").clip_coef_at(6) == pytest.approx(0.1)
    assert cfg.ent_coef_at(10) == 0.01 and replace(cfg, anneal_ent="linear").ent_coef_at(6) == pytest.approx(0.005)
    cosine = replace(cfg, anneal_lr="cosine", anneal_clip="cosine")
    expected = [0.5 * (1 + math.cos(math.pi * i / 10)) for i in range(10)]
    assert [cosine.learning_rate_at(i + 1) / 2.5e-4 for i in range(10)] == pytest.approx(expected)
    assert cosine.clip_coef_at(np.array([1, 6])) == pytest.approx([0.2, 0.1])


def test_true_and_false_stand_for_choices_where_others_have_a_switch():
    cfg = Config(anneal_lr=False, anneal_clip=True, norm_adv=True)
    assert cfg == Config(anneal_lr="none", anneal_clip="linear", norm_adv="minibatch")
    assert replace(cfg, norm_adv=False).norm_adv == "none" and Procgen(anneal_lr=True).anneal_lr == "linear"
    assert config_problems(Config(anneal_lr="slow")) == [
        "anneal_lr='slow' is not allowed. Use one of none, linear, cosine."]


def test_a_configuration_cannot_be_changed_and_every_field_is_explained():
    with pytest.raises(FrozenInstanceError):
        Config().seed = 2
    for kind, *_ in VARIANTS.values():
        assert kind.__doc__ and len({f.name for f in fields(kind)}) == len(fields(kind))


@pytest.mark.parametrize("number", [10_001, 2**63, 10**20])
@pytest.mark.parametrize(("kind", "name"), [(Config, "update_epochs"), (Config, "num_seeds"), (Config, "frame_stack"), (Config, "resize"),
                                            (Config, "frame_skip"), (Atari, "screen_size"), (Atari, "noop_max")])
def test_numbers_that_would_fill_the_memory_are_refused(kind, name, number):
    """As the only problem. frame_stack=2**31 took memory until there was none, and 2**63 was an OverflowError of numpy."""
    found = config_problems(kind(framework="jax" if name == "num_seeds" else "torch", **{name: number}).resolved())
    assert len(found) == 1 and re.match(rf"{name}={number} must be between [01] and 10000", found[0])


@pytest.mark.parametrize("change,sentence", [
    ({"gamma": 1.5}, "gamma=1.5 must be between 0 and 1"), ({"gae_lambda": -0.1}, "gae_lambda=-0.1 must be between"),
    *(({name: 1e12}, f"{name}=1000000000000.0 must be at most 1000000000.0") for name in ("env_timeout", "collective_timeout")),
    ({"gamma": math.nan}, "gamma=nan is not a finite number"), ({"ent_coef": math.inf}, "ent_coef=inf is not a finite"),
    ({"num_minibatches": 3}, "batch_size=512 is not divisible by num_minibatches=3. Use 1, 2, 4, 8, 16, 32, 64."),
    ({"num_minibatches": 512}, "num_minibatches=512 leaves one row to each minibatch, and norm_adv=minibatch makes its"),
    *(({"num_envs": 1, "num_steps": 1, "num_minibatches": 1, "norm_adv": kind}, f"num_envs * num_steps = 1 is a batch of one row, and norm_adv={kind} makes")
      for kind in ("minibatch", "batch")),
    ({"total_timesteps": 511}, "total_timesteps=511 is less than one batch, num_envs * num_steps = 512. Use"),
    ({"framework": "jax", "total_timesteps": 2**40, "anneal_ent": True}, "total_timesteps=1099511627776 makes 2147483648 iterations, and with framework=jax "
     "schedules have at most 2147483647. Use fewer, or set anneal_lr and anneal_ent to none."),
    ({"recurrent": "lstm", "num_envs": 6}, "num_envs=6 is not divisible by num_minibatches=4. Use 1, 2, 3, 6 for --num-minibatches: a recurrent policy learns "
     "from whole environments."),
    ({"env_workers": 3}, "num_envs=4 is not divisible by env_workers=3. Use 1, 2, 4."),
    ({"env_workers": 3, "num_steps": 1, "num_minibatches": 1}, "num_envs=4 is not divisible by env_workers=3. Use 1, 2, 4."),
    ({"num_envs": 0}, "num_envs=0 must be at least 1"), ({"clip_coef": 0.0}, "clip_coef=0.0 must be above 0"),
    ({"seed": -1}, "seed=-1 must be at least 0"), ({"device": "gpu"}, "device=gpu is unknown. Use cpu, cuda"),
    ({"keep_checkpoints": 1}, "keep_checkpoints=1 leaves nothing"), ({"target_kl": -1.0}, "target_kl=-1.0 must be"),
    ({"env_workers": -1}, "env_workers=-1 must be at least 0"), ({"target_kl": math.nan}, "target_kl=nan is not"),
    ({"threads": 1025}, "threads=1025 must be between 0 and 1024"),
    ({"device_ids": (0, -1)}, "device_ids=0 -1 must be at least 0"),
    ({"device": "3"}, "device=3 is unknown. Use cpu, cuda, cuda:N or auto."),
    ({"device": "cuda:\u00b2"}, "device=cuda:\u00b2 is unknown."),
    ({"device": "cuda:"}, "device=cuda: is unknown."),
    ({"engine": "ale"}, "engine=ale is not available in this variant. Use gym, envpool, jax or auto."),
    ({"engine": "jax"}, "engine=jax does not run with framework=torch. Use --framework jax or another engine."),
    ({"num_seeds": 2}, "num_seeds=2 trains several agents in one compiled function, which needs --framework jax."),
    ({"engine": "envpool", "env_workers": 2}, "env_workers=2 has no effect: EnvPool steps its environments on threads"),
    ({"engine": "jax", "framework": "jax", "env_workers": 2}, "env_workers=2 has no effect: JAX simulates all"),
    ({"hidden_sizes": ()}, "hidden_sizes is empty. Give the units of at least one hidden layer, such as 64."),
    ({"hidden_sizes": (8, 0)}, "hidden_sizes=8 0 must be at least 1"),
    ({"policy_sizes": (8, 4), "shared_network": True}, "policy_sizes=8 4 has no effect: policy and value share their "
     "network. Leave policy_sizes out, or use --no-shared-network with --model mlp and --recurrent none."),
    ({"value_sizes": (8,), "recurrent": "lstm"}, "value_sizes=8 has no effect: policy and value share"),
    ({"activation": "relu", "model": "cnn"}, "activation=relu has no effect: it belongs to the mlp. Leave activation"),
    ({"layer_norm": True, "model": "impala"}, "layer_norm=True has no effect: it belongs to the mlp."),
    ({"activation": "mish"}, "activation='mish' is not allowed. Use one of tanh, relu, elu, gelu, silu."),
    ({"log_std_init": math.nan}, "log_std_init=nan is not a finite number"),
    ({"state_dependent_std": True, "distribution": "gsde"}, "state_dependent_std=True has no effect with "
     "distribution=gsde, whose deviation depends on the state anyway. Use gaussian or squashed."),
    ({"log_std_init": -1.0, "distribution": "beta"}, "log_std_init=-1.0 has no effect: distribution=beta has no"),
    ({"sde_sample_freq": 4}, "sde_sample_freq=4 has no effect with distribution=gaussian. Use --distribution gsde.")])
def test_each_problem_is_one_sentence(change, sentence):
    problems = config_problems(replace(Config(), **change))
    assert len(problems) == 1 and problems[0].startswith(sentence)


def test_a_run_without_an_end_needs_no_schedule():
    """JAX divided the iteration by 2**31 and raised an OverflowError."""
    for change in ({"anneal_lr": "none"}, {"total_timesteps": 2**40 - 1}, {"framework": "torch"}):
        assert config_problems(replace(Config(framework="jax", total_timesteps=2**40), **change)) == []


def test_all_problems_are_reported_together():
    cfg = Config(gamma=2.0, learning_rate=math.nan, num_minibatches=3, total_timesteps=10, seed=-1, env_workers=3)
    assert len(config_problems(cfg)) == 6


@pytest.mark.parametrize("cfg,name", [(Atari(frame_skip=0), "frame_skip"), (Atari(sticky=1.5), "sticky"),
                                      (Atari(noop_max=-1), "noop_max"), (RPO(rpo_alpha=-0.1), "rpo_alpha"),
                                      (Procgen(num_levels=-1), "num_levels"), (Atari(sticky=math.nan), "sticky"),
                                      (SelfPlay(max_cycles=0), "max_cycles"), (SelfPlay(max_cycles=-5), "max_cycles"),
                                      (BatchedSim(reward_scaler=0.0), "reward_scaler"),
                                      (BatchedSim(reward_scaler=-1.0), "reward_scaler"),
                                      (BatchedSim(record_video_step_frequency=0), "record_video_step_frequency")])
def test_fields_of_variants_are_checked_too(cfg, name):
    assert [problem.partition("=")[0] for problem in config_problems(cfg)] == [name]


@given(st.integers(1, 40), st.integers(2, 40), st.integers(1, 40), st.sampled_from(["none", "lstm"]))
def test_the_minibatches_that_are_offered_work(num_envs, num_steps, num_minibatches, recurrent):
    """Every number that the sentence of a refusal offers is accepted."""
    cfg = Config(num_envs=num_envs, num_steps=num_steps, num_minibatches=num_minibatches, recurrent=recurrent)
    problems = config_problems(cfg)
    whole = num_envs % num_minibatches == 0 if recurrent == "lstm" else cfg.batch_size % num_minibatches == 0
    assert bool(problems) != (whole and cfg.minibatch_size > 1)
    for problem in [problem for problem in problems if "not divisible" in problem]:
        offered = [int(word) for word in problem.partition(". Use ")[2].rstrip(".").partition(" for ")[0].split(", ")]
        assert offered and all(not config_problems(replace(cfg, num_minibatches=k)) for k in offered)


def test_defaults_of_compact_depend_on_the_model():
    flat, images = Compact().resolved(), Compact(model="cnn").resolved()
    assert (flat.norm_obs, flat.norm_reward, flat.clip_rewards) == (True, True, False)
    assert (images.norm_obs, images.norm_reward, images.clip_rewards) == (False, False, True)
    assert Compact(norm_obs=False).resolved().norm_obs is False


@pytest.mark.parametrize("env_id,alpha", [("Ant-v4", 0.01), ("Reacher-v4", 0.01), ("InvertedDoublePendulum-v4", 0.01),
                                          ("Pusher-v5", 0.01), ("Walker2d-v4", 0.5), ("Humanoid-v4", 0.5),
                                          ("HumanoidStandup-v4", 0.5), ("Pendulum-v1", 0.5),
                                          ("Ant", 0.01), ("gymnasium:Hopper-v5", 0.01), ("Walker2d", 0.5),
                                          ("my_module:Ant-v0", 0.5)])
def test_rpo_alpha_depends_on_the_environment_and_is_reported(env_id, alpha, capsys):
    assert RPO(env_id=env_id).resolved().rpo_alpha == alpha
    assert ("rpo_alpha = 0.01" in capsys.readouterr().err) == (alpha == 0.01)
    assert RPO(env_id=env_id, rpo_alpha=0.3).resolved().rpo_alpha == 0.3
