"""The arguments of `proximo check-env`; tests/runs/check has what is checked."""

import pytest

from proximo.cli.main import main


@pytest.mark.parametrize(("words", "said"), [
    (["CartPole-v1", "--num-envs", "4"], "--num-envs is a setting of training, which check-env does not take. "
                                         "Leave it out."),
    (["--framework=jax", "--no_anneal_lr", "CartPole-v1", "--resize", "5", "--lr", "3"],
     "--framework and --no_anneal_lr and --lr are settings of training, which check-env does not take. "
     "Leave them out."),
    (["CartPole-v1", "--num-env", "4"], "Unrecognized options: --num-env, 4. `proximo check-env --help` explains it.")])
def test_flags_of_training_are_named(words, said, capsys):
    """They were `Unrecognized options`, as any misspelled word."""
    assert main(["check-env", *words]) == 2
    assert capsys.readouterr().err.strip() == f"proximo: {said}"


def test_its_own_flags_are_not_those_of_training(capsys):
    assert main(["check-env", "--env-id", "CartPole-v1", "--frame-stack", "2", "--env-timeout", "30"]) == 0
    assert "settings of training" not in capsys.readouterr().err
