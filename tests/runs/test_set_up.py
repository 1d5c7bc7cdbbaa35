"""set_up= of proximo.train, iterations, resume and run_program: another update, recorded and resumed as other parts of a program."""

import json
import multiprocessing
import sys
from functools import partial

import pytest
import torch

import proximo
from proximo.cli.commands import run_program
from proximo.cli.main import main
from proximo.envs.gym import make_gym
from proximo.errors import UsageError
from proximo.on_torch.assemble import assemble
from proximo.on_torch.learner import make_gradient, make_step
from proximo.on_torch.setup import set_up
from proximo.on_torch.train import train
from tests.support.runs import same_weights

FIELDS = {"env_id": "CartPole-v1", "num_envs": 2, "num_steps": 32, "num_minibatches": 2, "hidden_sizes": (8,), "logger": "none",
          "total_timesteps": 256, "checkpoint_every": 1, "keep_checkpoints": 0}


def sgd(cfg, make_envs, make_agent, loss_fn, state):
    """Stochastic gradient descent with momentum, whose state is that of Adam."""
    setup = set_up(cfg, make_envs, make_agent, loss_fn, state)
    adam = setup.adam

    def apply(gradient, learning_rate):
        adam.exp_avg.mul_(0.9).add_(gradient)
        adam.weights.sub_(10 * learning_rate * adam.exp_avg)
        return torch.linalg.vector_norm(gradient)

    step = make_step(make_gradient(setup.agent, loss_fn, cfg), apply, setup.learner.all_reduce_sum)
    return setup._replace(learner=setup.learner._replace(step=step))


def same_in_jax(*arguments):
    from proximo.on_jax.setup import set_up

    return set_up(*arguments)


def sgd_in_jax(*arguments):
    import jax

    from proximo.on_jax.setup import set_up

    def apply(adam, gradient, learning_rate, eps, max_grad_norm, count):
        momentum = jax.tree.map(lambda m, g: 0.9 * m + g, adam.exp_avg, gradient)
        weights = jax.tree.map(lambda w, m: w - 10 * learning_rate * m, adam.weights, momentum)
        return adam._replace(weights=weights, exp_avg=momentum), gradient.max()

    return set_up(*arguments, change_learner=lambda learner: learner._replace(apply=apply))


def same(*arguments):
    return set_up(*arguments)


def one_name_more(*arguments):
    setup = set_up(*arguments)
    return setup._replace(learner=setup.learner._replace(names=[*setup.learner.names, "more"]))


def one_advantage(*arguments):
    return set_up(*arguments)._replace(estimate=lambda rollout, cfg: rollout.reward.mean(0))


def failing(*arguments):
    set_up(*arguments)
    raise ValueError("of the program")


def parts_of(run):
    return json.loads((run / "config.json").read_text())["own_parts"]


@pytest.mark.parametrize("values", [{}, {"env_workers": 2}, {"env_groups": 2, "env_workers": 2}, {"recurrent": "gru"}])
def test_a_set_up_that_changes_nothing_gives_the_same_weights(tmp_path, values):
    one, two = (proximo.train("ppo", run_dir=tmp_path / name, **FIELDS, **values, **part)
                for name, part in (("one", {}), ("two", {"set_up": same})))
    assert same_weights(one, two) and parts_of(two) == {"set_up": "same"} and parts_of(one) == {}


@pytest.mark.parametrize("values", [{}, pytest.param({"compile": True}, marks=pytest.mark.slow)])
def test_a_run_with_another_optimizer_is_resumed_exactly(tmp_path, values):
    """It learns other weights than Adam, and is resumed with its function only."""
    fields = FIELDS | values | {"anneal_lr": False}
    adam, whole = proximo.train("ppo", run_dir=tmp_path / "adam", **fields), proximo.train(
        "ppo", run_dir=tmp_path / "whole", set_up=sgd, **fields)
    assert not same_weights(adam, whole)
    cut = proximo.train("ppo", run_dir=tmp_path / "cut", set_up=sgd, **fields | {"total_timesteps": 128})
    with pytest.raises(UsageError, match=r"Resume it with: proximo\.resume\('.*cut', set_up=\.\.\.\)"):
        proximo.resume(cut, total_timesteps=256)
    proximo.resume(cut, set_up=sgd, total_timesteps=256)
    assert same_weights(cut, whole)
    auto = proximo.train("ppo", run_dir=tmp_path / "auto", set_up=sgd, **fields | {"total_timesteps": 128})
    proximo.train("ppo", run_dir=auto, set_up=sgd, resume="auto", **fields)
    assert same_weights(auto, whole)


def test_a_resume_with_another_function_is_told_and_recorded(tmp_path, caplog):
    run = proximo.train("ppo", run_dir=tmp_path / "run", set_up=sgd, **FIELDS)
    proximo.resume(run, set_up=same, total_timesteps=320)
    assert "set_up sgd -> same" in caplog.text and parts_of(run) == {"set_up": "same"}


def test_iterations_take_it(tmp_path):
    """From a snapshot, too."""
    fields = {name: value for name, value in FIELDS.items() if name != "keep_checkpoints"}
    *_, last = proximo.iterations("ppo", set_up=sgd, **fields)
    first = next(training := proximo.iterations("ppo", set_up=sgd, **fields))
    state = first.snapshot()
    training.close()
    *_, again = proximo.iterations("ppo", set_up=sgd, state=state, **fields)
    assert all((x == again.weights()[name]).all() for name, x in last.weights().items())


@pytest.mark.parametrize(("values", "said"), [
    ({"set_up": 3}, r"set_up=3 is not a function\. Pass \(cfg, make_envs, make_agent, loss_fn, state\) -> "),
    ({"set_up": lambda cfg: None}, "set_up cannot be called with 5 arguments"),
    ({"set_up": lambda *arguments: None}, r"set_up returned None\. Pass "),
    ({"set_up": one_advantage}, r"estimate returned a tensor float32 \(2,\), and a rollout has the shape \(32, 2\)"),
    ({"set_up": one_name_more}, r"The step of set_up returns 6 statistics, and learner.names has 7: value_loss, .*, more\. "),
    ({"set_up": same, "framework": "jax"}, "framework=jax, and this loop trains with torch"),
    ({"set_up": same_in_jax}, "framework=torch, and this loop trains with JAX"),
    ({"set_up": lambda *arguments: 3, "framework": "jax"}, r"set_up returned int\. Pass "),
    ({"set_up": same_in_jax, "framework": "jax", "num_seeds": 2}, "train without set_up, which makes one run"),
    ({"set_up": same, "num_seeds": 2}, "num_seeds=2 trains several agents"),
    ({"set_up": same, "overlap": True}, "set_up was given with overlap=True, whose loop does not use it")])
def test_what_cannot_work_is_told(tmp_path, values, said):
    if "framework" in values or values["set_up"] is same_in_jax:
        pytest.importorskip("flax")
    for call in (proximo.train, lambda *a, run_dir, **b: next(proximo.iterations(*a, **b))):
        if call is proximo.train or "num_seeds" not in values:
            with pytest.raises(UsageError, match=said):
                call("ppo", run_dir=tmp_path / "run", **FIELDS | values)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("engine", ["jax", "gym"])
def test_a_run_of_jax_with_another_update_is_resumed_exactly(tmp_path, engine):
    """It learns other weights than Adam, and is resumed with its function only."""
    pytest.importorskip("flax")
    fields = FIELDS | {"framework": "jax", "engine": engine, "anneal_lr": False}
    adam, whole = proximo.train("ppo", run_dir=tmp_path / "adam", **fields), proximo.train(
        "ppo", run_dir=tmp_path / "whole", set_up=sgd_in_jax, **fields)
    assert not same_weights(adam, whole) and parts_of(whole) == {"set_up": "sgd_in_jax"}
    cut = proximo.train("ppo", run_dir=tmp_path / "cut", set_up=sgd_in_jax, **fields | {"total_timesteps": 128})
    with pytest.raises(UsageError, match=r"Resume it with: proximo\.resume\('.*cut', set_up=\.\.\.\)"):
        proximo.resume(cut, total_timesteps=256)
    with pytest.raises(UsageError, match="framework=jax, and this loop trains with torch"):
        proximo.resume(cut, set_up=same, total_timesteps=256)
    proximo.resume(cut, set_up=sgd_in_jax, total_timesteps=256)
    assert same_weights(cut, whole)


def test_commands_can_play_its_models(tmp_path, capsys):
    """Another update, or loss, is no part of the network or the environments: `eval` was left out of what to do next."""
    for given, commands in (({"set_up": same}, ("eval", "watch", "plot")), ({"make_agent": assemble}, ("plot",))):
        run = proximo.train("ppo", run_dir=tmp_path / next(iter(given)), **given, **FIELDS)
        assert capsys.readouterr().err.endswith(f"Next: {', '.join(f'proximo {one} {run}' for one in commands)}\n")
        if "eval" in commands:
            assert main(["eval", str(run), "--episodes", "1"]) == 0


def test_other_functions_say_where_it_belongs(tmp_path):
    for call in (proximo.sweep, proximo.check_env):
        with pytest.raises(UsageError, match="set_up is not a field of this variant. Pass it to proximo.train or proximo.iterations"):
            call(set_up=same)


def test_its_exceptions_are_those_of_the_program_and_end_the_environments(tmp_path):
    with pytest.raises(ValueError, match="of the program"):
        proximo.train("ppo", run_dir=tmp_path / "run", set_up=failing, **FIELDS, env_workers=2)
    assert not multiprocessing.active_children()


def test_a_command_of_a_program_takes_it(tmp_path, monkeypatch, capsys):
    """The run is that of proximo.train; another framework is refused, also where `train` is a partial."""
    def program(*words, loop=train, **parts):
        monkeypatch.setattr(sys, "argv", ["program.py", *map(str, words)])
        with pytest.raises(SystemExit) as ended:
            run_program(proximo.Config, loop, make_gym, assemble, **parts)
        return ended.value.code

    words = ["--num-envs", 2, "--num-steps", 32, "--num-minibatches", 2, "--hidden-sizes", 8, "--logger", "none", "--checkpoint-every", 1,
             "--keep-checkpoints", 0]
    run = tmp_path / "run"
    assert program(*words, "--total-timesteps", 256, "--run-dir", run, set_up=sgd) == 0
    assert parts_of(run) == {"program": "program.py", "set_up": "sgd"}
    assert same_weights(run, proximo.train("ppo", run_dir=tmp_path / "other", set_up=sgd, **FIELDS))
    assert program("resume", run, "--total-timesteps", 320) == 2 and "parts of its own" in capsys.readouterr().err
    assert program("resume", run, "--total-timesteps", 320, set_up=sgd) == 0
    assert program("--framework", "jax", set_up=sgd) == 2
    assert "framework=jax, and this program trains with torch" in capsys.readouterr().err
    assert program("--framework", "jax", loop=partial(train, set_up=sgd)) == 2
    assert "framework=jax, and this program trains with torch" in capsys.readouterr().err


def test_arguments_of_another_function_say_where_they_belong():
    """resume was `Did you mean resize?`."""
    for call, name, said in ((proximo.train, "state", "It is an argument of proximo.iterations"),
                             (proximo.iterations, "resume", "proximo.iterations continues from state=SNAPSHOT"),
                             (proximo.iterations, "callbacks", "Call the functions in the loop")):
        with pytest.raises(UsageError, match=f"{name} is not a field of this variant. {said}"):
            call("ppo", **{name: 3})
