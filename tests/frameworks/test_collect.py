"""collect against a script: what truly followed each action, for every pattern of ends in all reset modes, filler rows,
and the state of a recurrent layer at time limits."""

import numpy as np
import pytest

from tests.support.frameworks import FRAMEWORKS, load_framework
from tests.support.scripted import PATTERNS, PERIOD, ScriptedAgent, expected_rows, valid_rows

COLLECTORS = [*((name, mode) for name in FRAMEWORKS for mode in ("same-step", "next-step")), ("jax", "inside")]


@pytest.fixture(scope="session", params=COLLECTORS, ids="-".join)
def collector(request):
    """A framework with the way its environments reset; "inside" is JAX with environments in the compiled function."""
    name, mode = request.param
    return load_framework(name), mode


@pytest.fixture(scope="session")
def framework(collector):
    """The framework of the collector, for the fixture that switches to float64."""
    return collector[0]


@pytest.mark.parametrize("steps,rollouts", [(PERIOD, 2), (3, 3), (1, 8)])
def test_what_followed_each_action(collector, steps, rollouts):
    """Every pattern of ends of four steps at once, against the script. Rollouts begin anywhere in an episode."""
    framework, mode = collector
    records = framework.collect(mode, PATTERNS, steps, rollouts)
    for n, pattern in enumerate(PATTERNS):
        rows, actions = valid_rows(records, n)
        assert rows == expected_rows(pattern, actions)
        assert len(rows) >= steps * rollouts / 2 if mode == "next-step" else len(rows) == steps * rollouts


@pytest.mark.parametrize("later", [False, True])
def test_what_followed_each_action_where_no_time_limit_ends_an_episode(collector, later):
    """V(final_obs) is computed only in rollouts, or steps, in which one does."""
    framework, mode = collector
    patterns = PATTERNS[(PATTERNS < 2).all(1)]
    records = framework.collect(mode, patterns, PERIOD, 2, agent=ScriptedAgent(evaluates_later=later))
    for n, pattern in enumerate(patterns):
        rows, actions = valid_rows(records, n)
        for row, expected in zip(rows, expected_rows(pattern, actions), strict=True):
            if later:  # without a state
                follows = None if expected.next_value is None else expected.obs + 1
                expected = expected._replace(value=expected.obs, next_value=follows)
            assert row == expected


def test_actions_are_those_that_the_noise_decides(collector):
    """test_what_followed_each_action finds in the rewards that the environments took the recorded actions."""
    framework, mode = collector
    record, = framework.collect(mode, PATTERNS, PERIOD)
    assert np.array_equal(record.rollout.action, record.noise.argmax(-1))
    assert np.array_equal(record.rollout.logprob, -record.rollout.obs[..., 0])


def test_evaluating_after_the_rollout_finds_the_same_values(collector):
    """An agent with `evaluates_later`, without a state: V of every observation, and of what followed it."""
    framework, mode = collector
    records = framework.collect(mode, PATTERNS, PERIOD, 2, agent=ScriptedAgent(evaluates_later=True))
    for n, pattern in enumerate(PATTERNS):
        rows, actions = valid_rows(records, n)
        for row, expected in zip(rows, expected_rows(pattern, actions), strict=True):
            follows = None if expected.next_value is None else expected.obs + 1
            assert row == expected._replace(value=expected.obs, next_value=follows)


def test_episodes_are_recorded_once_with_return_and_length(collector):
    """Against sums of the rewards of valid rows, over the ends of rollouts."""
    framework, mode = collector
    records = framework.collect(mode, PATTERNS, PERIOD, 3)
    reward, valid, done = (np.concatenate([getattr(record.rollout, name) for record in records])
                           for name in ("reward", "valid", "done"))
    finished, ret, length = (np.concatenate(parts) for parts in zip(*(record.episode for record in records)))
    assert np.array_equal(finished, done)
    for n in range(len(PATTERNS)):
        total, steps = 0.0, 0
        for t in np.flatnonzero(valid[:, n]):
            total, steps = total + reward[t, n], steps + 1
            if done[t, n]:
                assert (ret[t, n], length[t, n]) == (total, steps)
                total, steps = 0.0, 0


def test_all_reset_modes_give_the_same_advantages(collector):
    """Against same-step environments, up to the filler rows, for every episode that ended in both."""
    framework, mode = collector
    agent = ScriptedAgent(constant=True)  # the same actions, whatever the number of steps
    same, other = (framework.collect(mode, PATTERNS, steps, agent=agent)[0].rollout
                   for mode, steps in (("same-step", 8), (mode, 16 if mode == "next-step" else 8)))
    advantages = [framework.gae(*(x.astype(np.float64) for x in (r.reward, r.value, r.next_value)), r.terminated,
                                r.done, 0.99, 0.95) for r in (same, other)]
    for n in range(len(PATTERNS)):
        ended = np.flatnonzero(same.done[:, n])
        ours, theirs = advantages[0][:, n], advantages[1][other.valid[:, n], n]
        until = min(int(ended[-1]) + 1 if len(ended) else 0, len(theirs))
        assert np.array_equal(ours[:until], theirs[:until])
    filler = ~other.valid
    assert filler.any() == (mode == "next-step")
    assert (other.reward[filler] == 0).all() and not other.done[filler].any()
