"""`proximo check-env` against probes with one known fault each."""

import pytest

from proximo.cli.check_env import check_env
from proximo.errors import UsageError


def told(env_id):
    """(sentences that say something is wrong, those that say all is well)"""
    findings = check_env(env_id)
    return ([finding.what for finding in findings if finding.ok is False],
            " ".join(finding.what for finding in findings if finding.ok))


def test_a_good_environment_has_no_fault():
    wrong, right = told("CartPole-v1")
    assert not wrong and "same seed gives the same episode" in right and "state can be saved" in right


def test_masks_are_obeyed():
    """The probe raises where a forbidden action is taken."""
    wrong, right = told("tests.support.probes:Masked-v0")
    assert not wrong and "action_mask" in right


@pytest.mark.parametrize(("name", "words"), [
    ("Endless", "no episode ended"), ("Spoken", "action space Text"), ("Faulty_raises", "the motor is on fire"),
    ("Faulty_nan_obs", "not finite"), ("Faulty_wrong_shape", "shape (1,)"),
])
def test_faults_are_told(name, words):
    wrong, _ = told(f"tests.support.probes:{name}-v0")
    assert len(wrong) == 1 and words in wrong[0]


def test_unknown_ids():
    with pytest.raises(UsageError, match="CartPole-v1"):
        check_env("CartPol-v1")


@pytest.mark.parametrize(("env_id", "variant"), [
    ("ALE/Breakout-v5", "ppo_atari"), ("pong_v3", "ppo_pettingzoo_ma_atari"), ("starpilot", "ppo_procgen")])
def test_ids_of_other_suites_are_sent_to_their_variant(env_id, variant):
    """One sentence with a command that works, instead of an unknown id."""
    with pytest.raises(UsageError, match=f"{env_id} is a.* game.*`proximo train {variant} --env-id {env_id}`"):
        check_env(env_id)


def test_dm_control_is_checked_by_the_name_that_training_takes():
    """`dm_control/...` is in Gymnasium's registry only once shimmy is imported."""
    pytest.importorskip("shimmy")
    pytest.importorskip("dm_control")
    wrong, right = told("dm_control/cartpole-balance-v0")
    assert not wrong and "episodes ended" in right
