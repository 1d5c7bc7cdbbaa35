"""Normalisation equals its definition in float64 over all rows."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st

from proximo.config import Config
from proximo.envs.arrays.moments import (
    PRIOR_COUNT,
    Moments,
    Statistics,
    known_statistics,
    merge_statistics,
    most_merged,
    start_moments,
    update_moments,
)
from proximo.envs.gym import make_gym
from proximo.envs.normalize import (
    apply_statistics,
    continue_statistics,
    count_reset,
    count_step,
    make_normalizer,
    pack_statistics,
    start_statistics,
    to_numpy,
    unpack_statistics,
)
from proximo.errors import UsageError
from proximo.protocols import Step
from tests.support.normalized import Normalized

CFG = Config(norm_obs=True, norm_reward=True, gamma=0.9)


def normalizer_for(cfg, num_envs=3, obs_shape=(2,), arrays="numpy", players=()):
    """Make the normaliser of environments of this kind."""
    return make_normalizer(cfg, SimpleNamespace(num_envs=num_envs, obs_shape=obs_shape, obs_dtype=np.dtype(np.float32),
                                                action_space=None, observation_space=None, arrays=arrays,
                                                players=players))


def definition(rows):
    """Return mean and variance of the rows and of PRIOR_COUNT rows with mean 0 and variance 1."""
    total = PRIOR_COUNT + len(rows)
    mean = rows.sum(axis=0) / total
    return mean, (PRIOR_COUNT * (1 + mean**2) + ((rows - mean) ** 2).sum(axis=0)) / total


def some_step(rng, num_envs=3, over=0.2, filler=False):
    ended = rng.random(num_envs) < over
    cut = rng.random(num_envs) < 0.5
    obs = rng.normal(5, 3, (num_envs, 2)).astype(np.float32)
    return Step(obs, ended, None, rng.normal(1, 2, num_envs).astype(np.float32), ended & ~cut, ended & cut,
                None if filler else obs + 100, np.ones(num_envs, bool), None, {})


def assert_close(one, other):
    for left, right in zip((*one.obs, *one.ret), (*other.obs, *other.ret), strict=True):
        np.testing.assert_allclose(left, right, rtol=1e-9, atol=1e-12)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**31), st.integers(1, 12), st.floats(-1e3, 1e3))
def test_moments_equal_the_definition(seed, batches, offset):
    """Moments equal mean and variance of all counted rows."""
    rng = np.random.default_rng(seed)
    moments, seen = start_statistics(1, (2,)).obs, []
    for _ in range(batches):
        batch, counted = rng.normal(offset, 2, (4, 2)), rng.random(4) < 0.6
        seen.append(batch[counted])
        batch[~counted] = 1e9  # must not be read
        moments = update_moments(moments, batch, counted)
    mean, var = definition(np.concatenate(seen))
    np.testing.assert_allclose(moments.mean, mean, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(moments.var, var, rtol=1e-6)
    assert moments.count == pytest.approx(PRIOR_COUNT + sum(map(len, seen)))


@pytest.mark.parametrize("counted", [None, np.arange(1000) % 3 > 0])
def test_rows_in_float32_are_summed_in_float64(counted):
    """A thousand numbers near 1e4, whose sum float32 rounds to a multiple of 1."""
    batch = np.random.default_rng(0).normal(1e4, 1, (1000, 2)).astype(np.float32)
    moments = update_moments(start_moments((2,)), batch, counted)
    mean, var = definition((batch if counted is None else batch[counted]).astype(np.float64))
    np.testing.assert_allclose(moments.mean, mean, rtol=1e-11)
    np.testing.assert_allclose(moments.var, var, rtol=1e-6)


@pytest.mark.parametrize("num_envs", [1, 3])
def test_statistics_and_steps_are_not_changed(num_envs):
    """Counting and applying write into no array that they get: a rollout can begin again from its carry."""
    rng, normalizer = np.random.default_rng(0), normalizer_for(CFG, num_envs)
    statistics = normalizer.start()
    for _ in range(5):
        step = some_step(rng, num_envs)
        arrays = [np.asarray(x) for x in (*statistics.obs, *statistics.ret, statistics.running, *step[:1], *step[3:7])]
        before = [x.copy() for x in arrays]
        statistics, _ = normalizer.step(statistics, step)
        for x, kept in zip(arrays, before, strict=True):
            np.testing.assert_array_equal(x, kept)


def test_steps_equal_baselines():
    """Steps equal `ret = ret * gamma + r; update; ret[done] = 0` as a loop over environments."""
    rng, normalizer = np.random.default_rng(0), normalizer_for(CFG)
    statistics, returns, observed, running = normalizer.start(), [], [], np.zeros(3)
    for _ in range(50):
        step = some_step(rng)
        statistics, normalised = normalizer.step(statistics, step)
        observed.append(step.obs.astype(float))
        for i in range(3):
            running[i] = running[i] * CFG.gamma + step.reward[i]
        returns.append(running.copy())
        running[step.terminated | step.truncated] = 0
        mean, var = definition(np.concatenate(observed))
        deviation = np.sqrt(definition(np.concatenate(returns))[1] + 1e-8)
        np.testing.assert_allclose(normalised.obs, np.clip((step.obs - mean) / np.sqrt(var + 1e-8), -10, 10), rtol=1e-5,
                                   atol=1e-5)
        np.testing.assert_allclose(normalised.reward, np.clip(step.reward / deviation, -10, 10), rtol=1e-5)
        for i in np.flatnonzero(step.first):
            wanted = np.clip((step.final_obs[i] - mean) / np.sqrt(var + 1e-8), -10, 10)
            np.testing.assert_allclose(normalised.final_obs[i], wanted, rtol=1e-5, atol=1e-5)


def test_both_reset_modes_count_the_same():
    """The statistics of the same episodes are equal: the fillers of next-step change nothing."""
    totals = []
    for mode in ("same-step", "next-step"):
        cfg = replace(CFG, env_id="tests.support.probes:Echo-v0", autoreset=mode)
        envs = Normalized(make_gym(cfg, [7]), cfg)
        step, valid = envs.reset(), 0
        while valid < 24:  # 6 episodes of 4 steps, which same-step has reset by now
            step = envs.step(np.array([valid % 2]))
            valid += int(step.valid[0])
        if mode == "next-step":
            step = envs.step(np.array([0]))
            assert not step.valid[0]
        totals.append(envs.statistics)
    assert_close(*totals)
    np.testing.assert_array_equal(totals[0].running, totals[1].running)


def test_filler_rows_touch_nothing():
    rng, statistics = np.random.default_rng(0), start_statistics(3, (2,))
    statistics = count_step(statistics, some_step(rng, over=0, filler=True), CFG)
    filler = some_step(rng, over=0, filler=True)
    filler = filler._replace(valid=np.zeros(3, bool), reward=np.full(3, 1e6, np.float32))
    after = count_step(statistics, filler, CFG)
    np.testing.assert_array_equal(after.running, statistics.running)
    assert after.ret == statistics.ret and after.obs.count == statistics.obs.count + 3


def test_a_player_who_is_out_is_not_counted():
    """Self-play with four rows of one game: row 1 is out at step 1, waits at step 2 and acts again at step 3.

    Statistics equal the definition over observations that were acted on, and over returns of players who played.
    """
    rng, out, no = np.random.default_rng(0), np.array([False, True, False, False]), np.zeros(4, bool)
    steps = [some_step(rng, 4)._replace(first=first, terminated=terminated, truncated=no, valid=valid)
             for first, terminated, valid in ((no, out, ~no), (no, no, ~out), (~no, ~out, ~out))]
    running, returns, played = np.zeros(4), [], iter(steps)
    game = SimpleNamespace(num_envs=4, obs_shape=(2,), obs_dtype=np.float32, action_space=None, observation_space=None,
                           arrays="numpy", players=("first", "second"), metric_names=(), play="host", step=lambda action: next(played))
    envs = Normalized(game, CFG)
    for step in steps:
        step.reward[~step.valid] = 0
        envs.step(np.zeros(4))
        running = np.where(step.valid, running * CFG.gamma + step.reward, running)
        returns.append(running[step.valid])
        running = np.where(step.terminated, 0, running)
    seen = np.concatenate([steps[0].obs[~out], steps[1].obs[~out], steps[2].obs]).astype(float)
    statistics = envs.statistics
    for moments, rows in ((statistics.obs, seen), (statistics.ret, np.concatenate(returns))):
        np.testing.assert_allclose((moments.mean, moments.var), definition(rows), rtol=1e-9)
    np.testing.assert_array_equal(statistics.running, np.zeros(4))


def test_the_rows_of_a_lost_worker_have_no_return():
    """--restart-envs with three rows, of which the second is lost at step 1: truncated, not valid, and begun again.

    Statistics equal the definition over all observations, and over returns of valid rows.
    """
    rng, no, lost = np.random.default_rng(0), np.zeros(3, bool), np.array([False, True, False])
    plain = some_step(rng)._replace(first=no, terminated=no, truncated=no, valid=~no)
    steps = [plain._replace(obs=some_step(rng).obs, reward=rng.normal(size=3).astype(np.float32)) for _ in range(3)]
    steps[1] = steps[1]._replace(first=lost, truncated=lost, valid=~lost, reward=np.where(lost, 0, steps[1].reward))
    cfg, played = replace(CFG, env_workers=3, restart_envs=1), iter(steps)
    envs = Normalized(SimpleNamespace(num_envs=3, obs_shape=(2,), obs_dtype=np.float32, action_space=None, players=(),
                                      observation_space=None, arrays="numpy", metric_names=(), play="host",
                                      step=lambda action: next(played)), cfg)
    running, returns = np.zeros(3), []
    for step in steps:
        envs.step(np.zeros(3))
        running = running * CFG.gamma + step.reward
        returns.append(running[step.valid])
        running = np.where(step.truncated, 0, running)
    seen = np.concatenate([step.obs for step in steps]).astype(float)
    for moments, rows in ((envs.statistics.obs, seen), (envs.statistics.ret, np.concatenate(returns))):
        np.testing.assert_allclose((moments.mean, moments.var), definition(rows), rtol=1e-9)
    np.testing.assert_array_equal(envs.statistics.running, running)


def merge_all(base, locals_):
    """Return what each rank has after an all-reduce."""
    parts = []
    for local in locals_:
        merge_statistics(base, local, lambda part: parts.append(part) or part)
    total = sum(parts)
    return [merge_statistics(base, local, lambda _: total) for local in locals_]


@pytest.mark.parametrize("ranks", [2, 3])
def test_merged_ranks_equal_one_process(ranks):
    """Every rank ends with the moments of one process that has the rows of all ranks."""
    rng = np.random.default_rng(0)
    start = base = count_step(start_statistics(3, (2,)), some_step(rng), CFG)
    for _ in range(3):  # three iterations, merged after each
        locals_, rows = [], []
        for _ in range(ranks):
            local = base
            for _ in range(5):
                step = some_step(rng)
                rows.append(step.obs)
                local = count_step(local, step, CFG)
            locals_.append(local)
        merged = merge_all(base, locals_)
        whole = base.obs
        for obs in rows:
            whole = update_moments(whole, obs, None)
        assert_close(merged[0], Statistics(whole, merged[0].ret, None))
        for other, local in zip(merged, locals_, strict=True):
            assert np.array_equal(other.obs.mean, merged[0].obs.mean)
            assert np.array_equal(other.ret.var, merged[0].ret.var)
            assert np.array_equal(other.running, local.running)
        base = merged[0]
    assert base.ret.count == start.ret.count + 3 * ranks * 15


def test_merging_one_rank_changes_nothing():
    rng = np.random.default_rng(0)
    base = count_step(start_statistics(3, (2,)), some_step(rng), CFG)
    local = count_step(base, some_step(rng), CFG)
    assert_close(merge_statistics(base, local, lambda part: part), local)
    assert_close(merge_statistics(base, base, lambda part: part), base)


def test_merging_keeps_shapes_and_small_variances():
    """Of images whose pixels differ by 1e-3, on two ranks with the same rows, against the definition."""
    rows, base = 0.5 + 1e-3 * np.random.default_rng(0).standard_normal((8, 2, 3)), start_statistics(1, (2, 3))
    local = base._replace(obs=update_moments(base.obs, rows, None))
    merged = merge_statistics(base, local, lambda sums: 2 * sums)
    mean, var = definition(np.concatenate([rows, rows]))
    np.testing.assert_allclose(merged.obs.mean, mean, rtol=1e-9)
    np.testing.assert_allclose(merged.obs.var, var, rtol=1e-6)
    assert [np.shape(x) for x in (*merged.obs, *merged.ret)] == [np.shape(x) for x in (*base.obs, *base.ret)]


def test_the_reset_counts_and_begins_returns_anew():
    rng = np.random.default_rng(0)
    statistics = count_step(start_statistics(3, (2,)), some_step(rng, over=0), CFG)
    after = count_reset(statistics, some_step(rng), CFG)
    assert after.obs.count == statistics.obs.count + 3 and after.ret == statistics.ret and not after.running.any()


@pytest.mark.parametrize(("fields", "normalizes"), [({}, False), ({"norm_obs": True}, True),
                                                    ({"norm_reward": True}, True)])
def test_the_configuration_decides_what_is_normalized(fields, normalizes):
    """Without normalisation there are no statistics and the very steps pass. The agent sees float32 observations."""
    cfg = Config(**fields)
    envs = make_gym(cfg, [1])
    normalizer, step = make_normalizer(cfg, envs), envs.reset()
    statistics, after = normalizer.reset(normalizer.start(), step)
    assert (statistics is not None) == normalizes == (after is not step)
    assert make_normalizer(cfg, SimpleNamespace(**{**vars(envs), "obs_dtype": np.dtype(np.uint8)}, players=(),
                                                arrays="numpy")).spec.obs_dtype == (
        np.float32 if cfg.norm_obs else np.uint8)


def tensors_of(step):
    """Return a step of tensors."""
    return step._replace(**{name: torch.from_numpy(x.copy()) for name, x in step._asdict().items() if isinstance(x, np.ndarray)})


@pytest.mark.parametrize("filler", [False, True])
def test_tensors_are_normalised_as_numpy_arrays_are(filler):
    """With the same float64 statistics, also where they come from a checkpoint in numpy."""
    rng, numpy, tensors = np.random.default_rng(0), normalizer_for(CFG), normalizer_for(CFG, arrays="torch")
    first = some_step(rng, over=0, filler=filler)
    (one, step), (other, same) = numpy.reset(numpy.start(), first), tensors.reset(tensors.start(), tensors_of(first))
    for t in range(30):
        raw = some_step(rng, filler=filler)
        if t == 20:
            other = to_numpy(other)
        (one, step), (other, same) = numpy.step(one, raw), tensors.step(other, tensors_of(raw))
        assert_close(one, to_numpy(other))
        np.testing.assert_allclose(one.running, other.running, rtol=1e-12)
        np.testing.assert_allclose(step.obs, same.obs, rtol=1e-6)
        np.testing.assert_allclose(step.reward, same.reward, rtol=1e-6)
        assert same.obs.dtype == same.reward.dtype == torch.float32
        assert filler or np.allclose(step.final_obs[raw.first], same.final_obs[raw.first], rtol=1e-6)
    assert most_merged(other.obs) == np.inf


def packed_envs(arrays):
    """Return what describes three environments with a camera beside joints."""
    space = spaces.Dict(image=spaces.Box(0, 255, (3, 8, 8), np.uint8), joints=spaces.Box(-1, 1, (2,)))
    return SimpleNamespace(num_envs=3, obs_shape=(200,), obs_dtype=np.dtype(np.uint8), action_space=None,
                           observation_space=space, arrays=arrays, players=())


def test_tensors_of_several_dtypes_cannot_be_normalised():
    with pytest.raises(UsageError, match=r"^norm_obs=True needs torch tensors of floats only.*norm_reward is possible"):
        make_normalizer(CFG, packed_envs("torch"))


def test_rewards_are_normalised_beside_tensors_of_several_dtypes():
    """As beside numpy arrays. Observations are not read: these were refused."""
    def with_camera(step):
        rows = rng.integers(0, 256, (3, 200), dtype=np.uint8)
        return step._replace(obs=rows, final_obs=None if step.final_obs is None else rows + 1)

    rng, cfg = np.random.default_rng(0), replace(CFG, norm_obs=False)
    one, other = (make_normalizer(cfg, packed_envs(arrays)) for arrays in ("numpy", "torch"))
    step = with_camera(some_step(rng, over=0))
    counted, _ = one.reset(one.start(), step)
    same, _ = other.reset(other.start(), tensors_of(step))
    for _ in range(20):
        step = with_camera(some_step(rng))
        (counted, expected), (same, found) = one.step(counted, step), other.step(same, tensors_of(step))
        assert_close(counted, to_numpy(same))
        np.testing.assert_allclose(expected.reward, found.reward, rtol=1e-6)
        np.testing.assert_array_equal(found.obs, step.obs)
        assert expected.obs is step.obs and not np.array_equal(found.reward, step.reward)


def test_only_what_is_asked_for():
    step = some_step(np.random.default_rng(0))
    only_obs, only_reward = (normalizer_for(replace(CFG, **{name: False})).step(start_statistics(3, (2,)), step)[1]
                             for name in ("norm_reward", "norm_obs"))
    assert only_obs.reward is step.reward and only_reward.obs is step.obs
    assert only_obs.obs is not step.obs and only_reward.reward is not step.reward


def test_packed_statistics_are_exact():
    """A checkpoint holds them once, as float64 arrays; in new environments only the running returns begin again."""
    statistics = count_step(start_statistics(3, (2,)), some_step(np.random.default_rng(0), over=0), CFG)
    packed = pack_statistics(statistics)
    again = unpack_statistics(packed)
    assert set(packed) == {"running", *(f"{a}_{b}" for a in ("obs", "ret") for b in ("mean", "var", "count", "rest"))}
    earlier = unpack_statistics({name: x for name, x in packed.items() if not name.endswith("_rest")})
    assert not earlier.obs.rest.any() and earlier.obs.rest.shape == (2, 2) and earlier.ret.rest.shape == (2,)
    for one, other in zip((*again.obs, *again.ret, again.running), (*statistics.obs, *statistics.ret, statistics.running),
                          strict=True):
        assert np.array_equal(one, other) and one.dtype == np.float64
    assert pack_statistics(None) is unpack_statistics(None) is continue_statistics(None, None) is None
    continued = continue_statistics(again, start_statistics(3, (2,)))
    assert continued.obs is again.obs and continued.ret is again.ret and not continued.running.any()


def test_the_same_functions_in_jax():
    """The pure functions run inside jit with jax.numpy, with the results of numpy."""
    jax = pytest.importorskip("jax")
    rng = np.random.default_rng(0)
    numpy, inside = normalizer_for(CFG), normalizer_for(replace(CFG, framework="jax"), arrays="jax")
    plain, compiled, play = numpy.start(), inside.start(), jax.jit(inside.step)
    for _ in range(5):
        step = some_step(rng, over=1)._replace(episode=())
        plain, one = numpy.step(plain, step)
        compiled, two = play(compiled, step)
        np.testing.assert_allclose(one.obs, two.obs, rtol=1e-3, atol=1e-4)
        np.testing.assert_allclose(one.reward, two.reward, rtol=1e-3)
        np.testing.assert_allclose(one.final_obs, two.final_obs, rtol=1e-3, atol=1e-4)
    assert apply_statistics(plain, step, CFG).obs.dtype == np.float32


def test_many_rows_in_float32_do_not_inflate_the_variance():
    """Two million standard normal rows from a count near 2**24, at which float32 stops counting, leave mean and
    variance at 0 and 1."""
    jax = pytest.importorskip("jax")
    jnp = jax.numpy
    few = start_moments((), jnp)._replace(count=jnp.float32(2**24 - 1000))

    def add(moments, key):
        return update_moments(moments, jax.random.normal(key, (10,)), None, jnp), None

    after = jax.jit(lambda start: jax.lax.scan(add, start, jax.random.split(jax.random.key(0), 200_000))[0])(few)
    assert abs(float(after.var) - 1) < 1e-2 and abs(float(after.mean)) < 1e-2
    assert float(after.count) <= 2**23 + 10


@pytest.mark.parametrize("num_envs", [1, 4])
def test_the_mean_in_float32_follows_after_many_rows(num_envs):
    """Against numpy's float64, which begins with as many rows: a mean of 0.9 or 100 moves to that of two million rows,
    and variances too. One row in 2**23 is less than a digit of float32."""
    jax = pytest.importorskip("jax")
    jnp, rng = jax.numpy, np.random.default_rng(0)
    old, new = np.array([[0.9, 100.0], [0.1, 1.0]]), np.array([[1.25, 105.0], [0.05, 2.0]])
    rows = (new[0] + new[1] * rng.standard_normal((2_000_000 // num_envs, num_envs, 2))).astype(np.float32)
    plain = Moments(mean=old[0], var=old[1] ** 2, count=np.float64(2**22), rest=np.zeros((2, 2)))
    compiled = Moments(*(jnp.asarray(x, jnp.float32) for x in plain))
    add = jax.jit(lambda start, rows: jax.lax.scan(lambda m, batch: (update_moments(m, batch, None, jnp), None), start, rows)[0])
    compiled = add(compiled, rows)
    every = rows.reshape(-1, 2).astype(np.float64)
    plain = update_moments(plain, every, None)
    np.testing.assert_allclose(compiled.mean, plain.mean, rtol=1e-6)
    np.testing.assert_allclose(compiled.var, plain.var, rtol=1e-6)
    assert float(compiled.count) == float(plain.count)


def test_moments_in_float32_of_few_rows():
    """Against numpy: the variance of the first rows does not suffer from the prior, which is much larger."""
    jax = pytest.importorskip("jax")
    jnp, rng = jax.numpy, np.random.default_rng(0)
    for counted in (None, np.array([True, False, True])):
        plain, single = start_moments((2,)), start_moments((2,), jnp)
        for _ in range(20):
            batch = (rng.standard_normal((3, 2)) * [1e-4, 1e-3] + [0.01, 1.0]).astype(np.float32)
            plain = update_moments(plain, batch, counted)
            single = update_moments(single, jnp.asarray(batch), counted, jnp)
            np.testing.assert_allclose(single.mean, plain.mean, rtol=1e-6)
            np.testing.assert_allclose(single.var, plain.var, rtol=1e-3)


@pytest.mark.parametrize(("dtype", "most"), [(np.float32, 2**22), (np.float64, 2**40)])
def test_known_moments_count_as_far_as_their_dtype_counts(dtype, most):
    """Of 2**40 rows: float64 counts on from there, float32 from 2**22."""
    empty = start_statistics(3, (2,))
    empty = empty._replace(running=empty.running.astype(dtype))
    known = {"ret": Moments(mean=np.float64(3), var=np.float64(4), count=np.float64(2**40))}
    found = known_statistics(lambda: empty, known)
    assert (found.ret.mean, found.ret.var, found.ret.count) == (3, 4, most) and found.obs is empty.obs


def test_merging_in_float32_loses_no_rows():
    """Two ranks of numpy arrays add one row each, 2,000 times, which is less than a digit of the mean each time."""
    def of_two_ranks(sums):
        assert sums.dtype == np.float64
        return 2 * sums

    base = start_statistics(1, (1,))
    base = Statistics(*(Moments(*(np.asarray(x, np.float32) for x in moments)) for moments in base[:2]), running=base.running)
    base = base._replace(obs=base.obs._replace(mean=np.float32([1000]), count=np.float32(2**22)))
    for _ in range(2000):
        one = base.obs._replace(mean=base.obs.mean, count=base.obs.count)
        moved = one._replace(count=one.count + 1, rest=one.rest + np.float32([[3 / 2**22], [0]]))
        merged = merge_statistics(base, base._replace(obs=moved), of_two_ranks, most_merged(base.obs))
        base = Statistics(*(Moments(*(np.asarray(x, np.float32) for x in moments)) for moments in merged[:2]),
                          running=base.running)
    assert base.obs.rest[1] == 0 and base.obs.mean[0] + base.obs.rest[0, 0] - 1000 == pytest.approx(2000 * 2 * 3 / 2**22, rel=0.02)


def test_ranks_count_on_in_float32_after_many_rows():
    """16 ranks of 2**16 rows an iteration pass 2**23 rows in the 9th; the moments stay those of the data, N(3, 2**2)."""
    jax = pytest.importorskip("jax")
    import jax.numpy as jnp

    from proximo.on_jax.distributed import AXIS
    from proximo.on_jax.play_mesh import merge_statistics_of_ranks

    rng = np.random.default_rng(0)
    start = start_statistics(4096, (1,), jnp)
    over_processes = on_devices = start
    on_mesh = jax.vmap(merge_statistics_of_ranks, in_axes=(None, 0), axis_name=AXIS)
    for _ in range(12):
        before, locals_ = (over_processes.obs, on_devices.obs), []
        rows = jnp.asarray(rng.normal(3, 2, (16, 4096, 1)), jnp.float32)
        for base in (over_processes, on_devices):
            local = base
            for batch in rows:  # the 16 steps of a rollout, the same on every rank
                local = local._replace(obs=update_moments(local.obs, batch, None, jnp))
            locals_.append(local)
        one = merge_statistics(*jax.device_get((over_processes, locals_[0])), lambda part: 16 * part, most_merged(locals_[0].obs))
        over_processes = jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), one)
        ranks = jax.tree.map(lambda x: jnp.stack([x] * 16), locals_[1])
        on_devices = jax.tree.map(lambda x: x[0], on_mesh(on_devices, ranks))
        for base, merged in zip(before, (over_processes.obs, on_devices.obs), strict=True):
            assert merged.count >= base.count
            assert abs(merged.mean[0] - 3) < 0.02 and abs(merged.var[0] - 4) < 0.05
