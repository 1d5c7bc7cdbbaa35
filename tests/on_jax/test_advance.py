"""Several iterations per call of a compiled function: the same numbers as one by one, whoever asks for a state and when."""

from dataclasses import replace
from types import SimpleNamespace

import jax.numpy as jnp
import numpy as np
import pytest

from proximo.errors import NumbersError
from proximo.on_jax import advance
from proximo.on_jax.advance import OneByOne, Several, make_advance
from proximo.on_jax.loss import ppo_loss
from proximo.on_jax.setup import set_up
from proximo.on_jax.train import train
from tests.on_jax.test_train import HOST, SMALL, assert_same, make_agent, make_envs

LONG = replace(SMALL, total_timesteps=128 * 45, checkpoint_every=20, anneal_clip=True, anneal_ent=True)


@pytest.fixture(autouse=True)
def no_clock(monkeypatch):
    """Calls count as quick, however slow the machine is."""
    monkeypatch.setattr(advance, "LONGEST", float("inf"))


@pytest.fixture
def counts(monkeypatch):
    """The number of iterations of every call that goes forward, in order."""
    found = []
    call = Several.__call__

    def noted(self, state, done):
        after, ended = call(self, state, done)
        found.append(len(ended))
        return after, ended

    monkeypatch.setattr(Several, "__call__", noted)
    return found


def look(cfg, asks):
    """Train, and return statistics, episodes and, where asks(iteration), snapshot and weights of every iteration."""
    return {it.iteration: (it.stats, it.steps, it.finished, it.statistics,
                           (it.snapshot(), it.weights()) if asks(it.iteration) else None)
            for it in train(cfg, make_envs, make_agent)}


@pytest.fixture(scope="module")
def one_by_one():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(advance, "MOST", 1)
        return look(LONG, lambda iteration: True)


@pytest.mark.parametrize("ahead", [False, True], ids=["", "ahead"])
@pytest.mark.parametrize("asks", [lambda i: True, lambda i: i % 7 == 0, lambda i: i in (12, 13, 14), lambda i: i == 45],
                         ids=["always", "every seventh", "three in a row", "the last"])
def test_numbers_are_those_of_one_iteration_per_call(asks, ahead, one_by_one, monkeypatch):
    """Also where the next call starts before the results of the last one are read, as on a GPU."""
    monkeypatch.setattr(advance, "on_cpu", lambda: not ahead)
    found = look(LONG, asks)
    assert found.keys() == one_by_one.keys() == {*range(1, 46)}
    for iteration, (stats, steps, finished, statistics, kept) in found.items():
        expected = one_by_one[iteration]
        assert stats == pytest.approx(expected[0], abs=0, rel=0, nan_ok=True) and steps == expected[1]
        assert all(np.array_equal(a, b) for a, b in zip(finished, expected[2]))
        assert all(np.array_equal(a, b) for a, b in zip(statistics.obs, expected[3].obs))
        assert (kept is not None) == asks(iteration)
        if kept is not None:
            assert_same(kept[1], expected[4][1])
            for name in ("adam", "carry", "envs"):
                assert_same(kept[0][name], expected[4][0][name])


def test_environments_that_are_made_again_are_used_although_a_call_has_started(monkeypatch):
    """A checkpoint of several processes contains no environments: they are made again every `checkpoint_every`."""
    cfg = replace(LONG, checkpoint_every=2, total_timesteps=12 * LONG.batch_size)
    state = look(cfg, lambda iteration: True)[2][4][0]
    del state["envs"], state["carry"]

    def continued(ahead):
        monkeypatch.setattr(advance, "on_cpu", lambda: not ahead)
        return [it.weights() for it in train(cfg, make_envs, make_agent, state=state)]

    found, expected = continued(ahead=True), continued(ahead=False)
    assert len(expected) == 10
    for one, other in zip(found, expected, strict=True):
        assert_same(one, other)


def test_calls_grow_until_somebody_asks_and_end_at_checkpoints(counts):
    look(LONG, lambda i: False)
    assert counts == [1, 2, 4, 8, 5, 16, 4, 5], "iterations 20 and 40 may be saved"
    counts.clear()
    look(LONG, lambda i: True)
    assert counts == [1] * 45, "nothing is run again for those who ask always"
    counts.clear()
    look(LONG, lambda i: i in (20, 26))
    assert counts == [1, 2, 4, 8, 5, 16, 1, 2, 1, 5], "26 is in the middle of a call, 20 at the end of one"


def test_the_next_call_starts_before_results_are_read_but_not_beyond_the_end(monkeypatch):
    """Order of what starts, with the iterations before it, and of what is yielded. Checkpoints are not waited for."""
    monkeypatch.setattr(advance, "on_cpu", lambda: False)
    order, start = [], Several._start

    def noted(self, state, done):
        began = start(self, state, done)
        order.append(("start", done, began.number))
        return began

    def read(x):
        order.extend(["read"] if order[-1] != "read" else [])
        return np.array(x)

    monkeypatch.setattr(Several, "_start", noted)
    monkeypatch.setattr(advance, "np", SimpleNamespace(array=read))
    for it in train(replace(LONG, total_timesteps=128 * 9, checkpoint_every=4), make_envs, make_agent):
        order.append(it.iteration)
    assert order == [("start", 0, 1), ("start", 1, 1), "read", 1, ("start", 2, 2), "read", 2, ("start", 4, 4), "read", 3, 4,
                     ("start", 8, 1), "read", 5, 6, 7, 8, "read", 9]


def test_slow_calls_do_not_grow(counts, monkeypatch):
    monkeypatch.setattr(advance, "LONGEST", 0.0)
    look(replace(LONG, total_timesteps=128 * 4), lambda i: False)
    assert counts == [1, 1, 1, 1]


def test_all_counts_share_one_compiled_function():
    player, state = set_up(LONG, make_envs, make_agent, ppo_loss)
    run, done = make_advance(LONG, player), 0
    while done < 10:
        state, ended = run(state, done)
        done += len(ended)
    ended[1].state()
    assert done == int(state.iteration) == 1 + 2 + 4 + 8 and run._run._cache_size() == 1


@pytest.mark.parametrize(("cfg", "kind"), [(LONG, Several), (HOST, OneByOne), (replace(LONG, num_steps=2048, total_timesteps=8192), OneByOne)],
                         ids=["small", "environments outside", "large"])
def test_what_runs_several(cfg, kind):
    player, _ = set_up(cfg, make_envs, make_agent, ppo_loss)
    assert type(make_advance(cfg, player)) is kind
    player.envs.close()


def test_iterations_before_one_that_fails_are_reported(counts):
    """The clip coefficient falls from 0.2 to 0: below half of it, in iteration 24, the loss is not finite."""
    def broken(batch, cfg):
        loss, stats = ppo_loss(batch, cfg)
        return loss * jnp.where(batch.clip_coef < 0.1, jnp.nan, 1.0), stats

    seen = []
    with pytest.raises(NumbersError, match="iteration 24 "):
        for it in train(LONG, make_envs, make_agent, broken):
            seen.append(it.iteration)
    assert seen == [*range(1, 24)] and counts[-1] > 1
