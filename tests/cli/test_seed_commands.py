"""Every command line printed in the documents that Proximo follows parses, with `proximo train NAME` in place of
`python cleanrl/NAME.py` (also under poetry or torchrun) and of the compact repository's `main.py`."""

import re
import shlex

import pytest

from proximo.catalog import VARIANTS, config_class
from proximo.cli.commands import variant_by_environment
from proximo.cli.flags import parse_flags
from proximo.cli.main import main
from proximo.cli.train_help import COMMON, flag_helps
from proximo.facts import facts
from proximo.problems import config_problems
from proximo.runs.settings.resolve import resolve
from proximo.variants import BatchedHands

# (processes, variant, flags, what the flags must set)
COMMANDS = [
    (1, "ppo", "--env-id CartPole-v1", {"env_id": "CartPole-v1"}),
    (1, "ppo", "", {"env_id": "CartPole-v1", "total_timesteps": 500_000, "num_envs": 4, "num_steps": 128}),
    (1, "ppo_atari", "--env-id BreakoutNoFrameskip-v4", {"env_id": "BreakoutNoFrameskip-v4", "num_envs": 8}),
    (1, "ppo_continuous_action", "--env-id Hopper-v4", {"env_id": "Hopper-v4", "num_minibatches": 32}),
    (1, "ppo_continuous_action", "--env-id dm_control/cartpole-balance-v0",
     {"env_id": "dm_control/cartpole-balance-v0"}),
    (1, "ppo_atari_lstm", "--env-id BreakoutNoFrameskip-v4", {"recurrent": "lstm", "frame_stack": 1}),
    (1, "ppo_atari_envpool", "--env-id Breakout-v5", {"env_id": "Breakout-v5", "engine": "envpool"}),
    (1, "ppo_atari_envpool_xla_jax", "--env-id Breakout-v5", {"framework": "jax", "unroll": True}),
    (1, "ppo_atari_envpool_xla_jax_scan", "--env-id Breakout-v5", {"framework": "jax", "unroll": False}),
    (1, "ppo_procgen", "--env-id starpilot", {"env_id": "starpilot", "gamma": 0.999, "anneal_lr": "none"}),
    (2, "ppo_atari_multigpu", "--env-id BreakoutNoFrameskip-v4", {"num_envs": 16, "backend": "gloo"}),
    (2, "ppo_atari_multigpu", "--env-id BreakoutNoFrameskip-v4 --backend nccl", {"backend": "nccl"}),
    (2, "ppo_atari_multigpu", "--env-id BreakoutNoFrameskip-v4 --device-ids 0 0 1 1", {"device_ids": (0, 0, 1, 1)}),
    (2, "ppo_atari_multigpu", "--env-id BreakoutNoFrameskip-v4 --local-num-envs=4",
     {"num_envs": 8, "batch_size": 1024, "minibatch_size": 256, "num_iterations": 9765}),
    (8, "ppo_atari_multigpu", "--env-id BreakoutNoFrameskip-v4 --local-num-envs=8",
     {"num_envs": 64, "batch_size": 8192}),
    (1, "ppo", "--scale-envs 4", {"num_envs": 16, "num_minibatches": 16, "minibatch_size": 128, "num_iterations": 244,
                                  "learning_rate": 2.5e-4, "scale_envs": 1}),
    (2, "ppo_atari_multigpu", "--scale-envs 2", {"num_envs": 32, "local_num_envs": 16, "num_minibatches": 8}),
    (1, "ppo_pettingzoo_ma_atari", "--env-id pong_v3", {"env_id": "pong_v3", "num_envs": 16}),
    (1, "ppo_pettingzoo_ma_atari", "--env-id surround_v2", {"env_id": "surround_v2"}),
    (1, "ppo_continuous_action_isaacgym", "--env-id Ant", {"num_envs": 4096, "learning_rate": 0.0026, "vf_coef": 2.0}),
    (1, "ppo_continuous_action_isaacgym", "--track --capture_video --num-envs 16384 --num-steps 8 --update-epochs 5 "
     "--reward-scaler 0.01 --total-timesteps 600000000 --record-video-step-frequency 3660",
     {"track": True, "capture_video": True, "num_envs": 16384, "num_steps": 8, "update_epochs": 5,
      "reward_scaler": 0.01, "total_timesteps": 600_000_000, "record_video_step_frequency": 3660, "logger": "wandb"}),
    (1, "compact", '--env_name="LunarLander-v2" --model="mlp"', {"env_id": "LunarLander-v3", "model": "mlp",
                                                                "norm_obs": True, "norm_adv": "batch"}),
    (1, "compact", '--env="LunarLander-v2" --model="mlp"', {"env_id": "LunarLander-v3", "norm_reward": True}),
    (1, "compact", '--env="PongNoFrameskip-v4" --model="cnn" --end_on_life_loss=True --clip_rewards=True',
     {"env_id": "PongNoFrameskip-v4", "model": "cnn", "end_on_life_loss": True, "clip_rewards": True,
      "norm_reward": False}),
    (1, "compact", '--device="cuda"', {"device": "cuda"}),
    (1, "compact", '--logger="wandb"', {"logger": "wandb"}),
]

# the columns of hyper-parameters printed for Isaac Gym: every flag of the table, with its value
ISAAC_TABLE = {
    "ppo_continuous_action": "1000000 3e-4 1 2048 True 32 10 True 0.5 0.5",
    "ppo_continuous_action_isaacgym": "30000000 0.0026 4096 16 False 2 4 False 2 1",
    "ppo_continuous_action_isaacgym_hands": "600000000 0.0026 8192 8 False 4 5 False 2 1",
}
ISAAC_FLAGS = ("--total-timesteps", "--learning-rate", "--num-envs", "--num-steps", "--anneal-lr", "--num-minibatches",
               "--update-epochs", "--clip-vloss", "--vf-coef", "--max-grad-norm")


def read(processes, variant, flags):
    kind = config_class(variant)
    return resolve(kind(**parse_flags(kind, shlex.split(flags))), variant, processes, processes)


@pytest.mark.parametrize("processes,variant,flags,expected", COMMANDS)
def test_command_parses(processes, variant, flags, expected):
    cfg = read(processes, variant, flags)
    assert config_problems(cfg) == []
    for name, value in expected.items():
        assert getattr(cfg, name) == value


@pytest.mark.parametrize("variant", ISAAC_TABLE)
def test_table_of_flags_is_the_variants_defaults(variant):
    """Against the printed table: giving every value of a column changes nothing."""
    words = [word for pair in zip(ISAAC_FLAGS, ISAAC_TABLE[variant].split()) for word in pair]
    assert read(1, variant, " ".join(words)) == read(1, variant, "")
    assert BatchedHands().reward_scaler == 0.01


@pytest.mark.parametrize("flags,expected", [
    ('--env_name="LunarLander-v2" --model="mlp"', "ppo"), ('--env="PongNoFrameskip-v4" --model="cnn"', "ppo_atari"),
    ("--env_id dm_control/cartpole-balance-v0", "ppo_continuous_action"),
    ("--env-id pong_v3", "ppo_pettingzoo_ma_atari"), ("--env-id Pendulum-v1", "ppo_continuous_action"),
    ("--anneal-lr False", "ppo")])
def test_command_without_a_variant_is_told_one(flags, expected, capsys):
    pytest.importorskip("Box2D")
    assert variant_by_environment(shlex.split(flags))[0] == expected
    config_class(expected)
    parse_flags(config_class(expected), shlex.split(flags))
    assert ("No variant was named" in capsys.readouterr().err) == ("env" in flags)


def test_the_engine_is_asked_for_the_spaces(capsys):
    """An id that only EnvPool has."""
    pytest.importorskip("envpool_assets")  # importorskip("envpool") would import it before its libraries
    assert variant_by_environment(["--engine", "envpool", "--env-id=MiniGrid-Empty-5x5-v0"])[0] == "ppo"


@pytest.mark.parametrize("variant", VARIANTS)
def test_help_explains_every_field(variant, capsys):
    """--help-all names every flag under the heading of its group; --help the common ones, each with a sentence."""
    assert main(["train", variant, "--help-all"]) == 0
    shown = capsys.readouterr().out.replace("--[no-]", "--")
    sections = re.split(r"^(environment|policy|training|logging|machine)$", shown, flags=re.MULTILINE)
    by_group = dict(zip(sections[1::2], sections[2::2]))
    assert all(f"--{name.replace('_', '-')}" in by_group[fact.group]
               for name, fact in facts(config_class(variant)).items())
    assert all(one.text for one in flag_helps(config_class(variant)))
    assert main(["train", variant, "--help"]) == 0
    shown = capsys.readouterr().out.replace("--[no-]", "--")
    assert all(f"--{name.replace('_', '-')}" in shown for name in COMMON) and "--help-all" in shown
