"""Batches of functions of JAX."""

import numpy as np
import pytest

from tests.envs.test_func_env import Walk

jnp = pytest.importorskip("jax.numpy")
func_env = pytest.importorskip("proximo.envs.func_env")
pure_vec = pytest.importorskip("proximo.envs.pure")


def test_one_object_is_traced_once(monkeypatch):
    """Also where the batches before are gone, as those of each game of a rating; their states stay apart."""
    pure, traced, firsts, counts = func_env.FuncPure(Walk(), 2), [], [], []
    observe = pure._observe
    monkeypatch.setattr(pure, "_observe", lambda *of: traced.append(1) or observe(*of))
    for seed in (1, 2, 1):
        envs = pure_vec.PureVec(pure, seed)
        firsts.append(np.asarray(envs.reset().obs))
        envs.step(jnp.zeros(2, jnp.int32))
        counts.append(len(traced))
        del envs
    assert counts[0] == counts[1] == counts[2] > 0
    assert np.array_equal(firsts[0], firsts[2]) and not np.array_equal(firsts[0], firsts[1])
