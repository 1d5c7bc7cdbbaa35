"""Parts of a program: settings that only they can apply, and other parts than those that a run was trained with."""

import json
import re
import sys

import gymnasium as gym
import pytest

import proximo
from proximo.cli.commands import run_program
from proximo.envs.gym import make_gym
from proximo.envs.gym_loop import GymEnvs
from proximo.envs.parallel_env import from_parallel_env
from proximo.errors import UsageError, warn_once
from proximo.models.export.files import description
from proximo.models.export.portable import Portable
from proximo.on_torch.assemble import assemble
from proximo.on_torch.loss import ppo_loss
from proximo.on_torch.train import train
from proximo.variants import Atari

FIELDS = {"env_id": "Poles", "num_envs": 2, "num_steps": 16, "num_minibatches": 2, "total_timesteps": 32, "logger": "none"}
IMAGES = {"frame_stack": 4, "frame_skip": 5, "resize": 16, "grayscale": True, "env_wrappers": ("nothing:Nothing",)}


def poles(cfg, seeds):
    return GymEnvs(lambda *_: gym.make("CartPole-v1"), seeds, "poles")


def vector(cfg, seeds):
    return gym.make_vec("CartPole-v1", len(seeds), "vector_entry_point")


def network(spec, cfg):
    return assemble(spec, cfg)


def other_network(spec, cfg):
    return assemble(spec, cfg)


@pytest.mark.parametrize("make_envs", [poles, vector])
def test_settings_that_only_environments_of_a_program_can_apply_are_told(tmp_path, caplog, make_envs):
    """They had no effect, and exported files named them as what changes observations."""
    run = proximo.train("ppo", make_envs=make_envs, **FIELDS, **IMAGES, env_workers=2, autoreset="next-step", norm_obs=True,
                        hidden_sizes=(8,), run_dir=str(tmp_path / "run"))
    (said,) = [one.message for one in caplog.records if "only if" in one.message]
    assert said == ("env_wrappers=nothing:Nothing, frame_skip=5, grayscale=True, resize=16, frame_stack=4, env_workers=2, "
                    "autoreset=next-step have an effect on the environments only if make_envs reads them from its configuration.")
    model = proximo.load(run)
    assert description(model, Portable(model))["preprocessing"] == {"make_envs": make_envs.__name__}


@pytest.mark.parametrize(("values", "said"), [
    ({"layer_norm": True}, "layer_norm=True has an effect on the network only if make_agent reads it from its configuration."),
    ({"hidden_sizes": [8], "activation": "relu"}, "hidden_sizes=8, activation=relu have an effect on the network only if "),
    ({"hidden_sizes": [64, 64], "env_workers": 0, "seed": 2}, "")])
def test_settings_that_only_a_network_of_a_program_can_apply_are_told(tmp_path, caplog, values, said):
    """They were recorded as if they had an effect. Those that nobody has given are not named."""
    proximo.train("ppo", make_envs=poles, make_agent=network, **FIELDS, **values, run_dir=str(tmp_path / "run"))
    assert said in caplog.text and ("only if" in caplog.text) == bool(said)


def test_what_was_chosen_for_an_environment_was_not_given(tmp_path, caplog):
    """A preset sets the sizes of the network."""
    assert proximo.preset("Pendulum-v1").gamma != proximo.Config.gamma
    next(proximo.iterations(env="Pendulum-v1", make_agent=network, total_timesteps=8192))
    assert "only if" not in caplog.text


def test_functions_of_this_package_apply_the_settings(tmp_path, caplog):
    next(proximo.iterations("ppo", make_envs=make_gym, make_agent=assemble, hidden_sizes=(8,), env_kwargs={"render_mode": None},
                            **FIELDS | {"env_id": "CartPole-v1"}))
    assert "only if" not in caplog.text
    with pytest.raises(UsageError, match="frame_stack=2 has no effect on environments of from_parallel_env"):
        next(proximo.iterations("ppo", make_envs=from_parallel_env(object), frame_stack=2, **FIELDS))
    assert "only if" not in caplog.text


def test_a_command_of_a_program_tells_the_flags_that_only_it_can_apply(tmp_path, monkeypatch, capsys):
    """Not the number of worker processes, which the machine chooses for this variant."""
    words = ["--num-envs", "2", "--num-steps", "16", "--total-timesteps", "32", "--logger", "none", "--run-dir", str(tmp_path / "run"),
             "--model", "mlp", "--env-id", "Poles", "--no-clip-rewards"]
    monkeypatch.setattr(sys, "argv", ["program.py", *words])
    with pytest.raises(SystemExit):
        run_program(Atari, train, poles, network)
    said = capsys.readouterr().err
    assert "clip_rewards=False has an effect on the environments only if make_envs reads it" in said
    assert "model=mlp has an effect on the network only if make_agent reads it" in said


@pytest.mark.parametrize(("given", "said"), [
    ({"config": 3}, "3 is not a configuration class. Use Config,"), ({"config": Atari()}, "is not a configuration class"),
    ({"config": int}, "int is not a configuration class"), ({"train": 3}, "train=3 is not a function. Pass a loop"),
    ({"make_envs": "x", "set_up": 3}, "make_envs='x' is not a function.*\n.*set_up=3 is not a function"),
    ({"callbacks": 3}, "callbacks=3 is not a list of functions"), ({"callbacks": [3]}, "callbacks has 3, which is not a function")])
@pytest.mark.parametrize("words", [[], ["resume", "nowhere"]], ids=["train", "resume"])
def test_wrong_arguments_of_a_command_of_a_program_are_told(given, said, words, tmp_path, monkeypatch, capsys):
    """As sentences with exit code 2; nothing is written."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["program.py", *words])
    with pytest.raises(SystemExit) as ended:
        run_program(**{"config": Atari, "train": train, "make_envs": poles, "make_agent": network} | given)
    err = capsys.readouterr().err
    assert ended.value.code == 2 and re.search(said, err) and not [*tmp_path.iterdir()]
    assert all(line.startswith("proximo: ") for line in err.splitlines())


def test_playing_with_other_functions_than_those_of_the_run_is_told_once(tmp_path, caplog):
    """By their names; a lambda has none."""
    warn_once.cache_clear()
    run = proximo.train("ppo", make_envs=poles, make_agent=network, **FIELDS, run_dir=str(tmp_path / "run"))
    model = proximo.load(run, make_agent=network)
    proximo.evaluate(run, 1, make_envs=poles, make_agent=network)
    proximo.evaluate(run, 1, make_envs=lambda cfg, seeds: poles(cfg, seeds), make_agent=lambda spec, cfg: network(spec, cfg))
    proximo.evaluate(model, 1, env="CartPole-v1")
    assert "other functions" not in caplog.text
    for _ in range(2):
        proximo.load(run, make_agent=other_network)
    proximo.evaluate(model, 1, make_envs=vector)
    proximo.evaluate(run, 1, make_envs=vector, make_agent=network)
    said = [one.message.partition(": ")[::2] for one in caplog.records if "other functions" in one.message]
    assert [changed for _, changed in said] == ["make_agent network -> other_network.", "make_envs poles -> vector.",
                                                "make_envs poles -> vector."]
    assert said[0][0] == f"{run} was trained with other functions than those that are given now"
    assert said[1][0].startswith("the model was trained")


def test_a_resume_does_not_compare_lambdas(tmp_path, caplog):
    run = proximo.train("ppo", make_envs=lambda cfg, seeds: poles(cfg, seeds), **FIELDS, run_dir=str(tmp_path / "run"))
    proximo.resume(run, make_envs=poles, total_timesteps=64)
    assert "not trained with" not in caplog.text
    assert json.loads((run / "config.json").read_text())["own_parts"] == {"make_envs": "poles"}
    proximo.resume(run, make_envs=poles, loss_fn=lambda batch, cfg: ppo_loss(batch, cfg), total_timesteps=96)
    assert "loss_fn none -> <lambda>" in caplog.text


@pytest.mark.parametrize("framework", ["torch", "jax"])
def test_a_field_that_a_loss_does_not_get_is_named(framework):
    """It was an AttributeError of Python."""
    if framework == "jax":
        pytest.importorskip("flax")
    with pytest.raises(UsageError, match=r"loss_fn reads obs, which LossInputs does not have. Its fields are logprob, .*, dist"
                                         r"\. .*docs/add-a-loss.md"):
        next(proximo.iterations("ppo", loss_fn=lambda batch, cfg: (batch.obs.mean(), {}), framework=framework,
                                **FIELDS | {"env_id": "CartPole-v1"}))
    with pytest.raises(UsageError, match=r"raised AttributeError: 'Config' object has no attribute 'nothing' \(.*line \d+\)"):
        next(proximo.iterations("ppo", loss_fn=lambda batch, cfg: cfg.nothing, framework=framework,
                                **FIELDS | {"env_id": "CartPole-v1"}))
