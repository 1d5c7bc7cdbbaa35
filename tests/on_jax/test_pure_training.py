"""init and step as pure functions: under jit they equal train() bit for bit, and they can be vmapped, scanned and sharded."""

import os
import subprocess
import sys
from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from proximo.catalog import parts_of
from proximo.config import Config
from proximo.envs.episodes import finished_episodes
from proximo.errors import EnvError, UsageError
from proximo.facts import setting
from proximo.on_jax.agent import SeparateAgent
from proximo.on_jax.distributions import CategoricalHead
from proximo.on_jax.loss import ppo_loss
from proximo.on_jax.pure_training import make_training
from proximo.on_jax.train import train
from proximo.on_jax.train_step import stream_keys

_, make_envs, make_agent, *_ = parts_of("ppo", "jax")
SMALL = Config(framework="jax", engine="jax", num_envs=4, num_steps=32, total_timesteps=640, num_minibatches=2,
               update_epochs=2, hidden_sizes=(16, 16), norm_obs=True, norm_reward=True, seed=3)
CASES = {"normalised": SMALL, "plain": replace(SMALL, norm_obs=False, norm_reward=False, anneal_lr=False),
         "memory": replace(SMALL, recurrent="gru", memory_size=8), "shared": replace(SMALL, shared_network=True)}


def arrays(tree):
    """Every array as numpy, keys of JAX as their data."""
    return [np.asarray(jax.random.key_data(x) if jax.dtypes.issubdtype(x.dtype, jax.dtypes.prng_key) else x)
            for x in jax.tree.leaves(tree)]


def assert_equal(one, other):
    for a, b in zip(arrays(one), arrays(other), strict=True):
        np.testing.assert_array_equal(a, b)


def assert_close(one, other):
    for a, b in zip(arrays(one), arrays(other), strict=True):
        np.testing.assert_allclose(a, b, atol=5e-5, rtol=1e-4)


@pytest.mark.parametrize("cfg", CASES.values(), ids=CASES)
@pytest.mark.parametrize("init_compiled", [False, True])
def test_step_under_jit_is_train_bit_for_bit(cfg, init_compiled):
    training, steps = make_training(cfg, make_envs, make_agent), 0
    step = jax.jit(training.step)
    state = (jax.jit(training.init) if init_compiled else training.init)(jax.random.key(cfg.seed))
    for it in train(cfg, make_envs, make_agent):
        state, metrics = step(state)
        assert {name: float(x) for name, x in metrics.losses.items()} == pytest.approx(
            {name.removeprefix("losses/"): x for name, x in it.stats.items() if "losses/" in name}, abs=0, nan_ok=True)
        weights = it.weights()
        assert all(np.array_equal(weights[name], x) for name, x in state.adam.weights.items())
        finished, steps = finished_episodes(jax.tree.map(np.asarray, metrics.episode), np.asarray(metrics.valid), steps)
        assert steps == it.steps and np.array_equal(finished.ret, it.finished.ret)
    assert int(state.iteration) == cfg.num_iterations
    assert step._cache_size() == 1


def test_whole_floats_are_converted():
    """The check of configurations accepts them."""
    training = make_training(replace(SMALL, num_steps=32.0, num_envs=4.0), make_envs, make_agent)
    assert training.init(jax.random.key(1)).carry.obs.shape == (4, 4)


def test_cfg_seed_is_not_used():
    one, other = (make_training(replace(SMALL, seed=seed), make_envs, make_agent).init(jax.random.key(7))
                  for seed in (1, 2))
    assert_equal(one, other)


def test_vmap_over_three_keys_is_three_trainings():
    training = make_training(SMALL, make_envs, make_agent)
    keys = jax.random.split(jax.random.key(0), 3)
    states, metrics = jax.jit(jax.vmap(training.step))(jax.jit(jax.vmap(training.init))(keys))
    assert metrics.episode.ret.shape == (3, SMALL.num_steps, SMALL.num_envs) and metrics.valid.shape == (3, 32)
    for s, key in enumerate(keys):
        alone, losses = jax.jit(training.step)(training.init(key))
        assert_close(jax.tree.map(lambda x, s=s: x[s], states), alone)
        assert_close(jax.tree.map(lambda x, s=s: x[s], metrics.losses), losses.losses)
    first = states.adam.weights["critic.layers.0.weight"]
    assert not np.array_equal(first[0], first[1])


def test_scan_over_steps_is_a_loop_over_steps():
    training = make_training(SMALL, make_envs, make_agent)
    state = training.init(jax.random.key(1))
    scanned, metrics = jax.jit(lambda state: jax.lax.scan(lambda now, _: training.step(now), state, length=4))(state)
    step = jax.jit(training.step)
    for _ in range(4):
        state, last = step(state)
    assert_close(scanned, state)
    assert_close(jax.tree.map(lambda x: x[-1], metrics.losses), last.losses)
    assert metrics.losses["approx_kl"].shape == (4,) and metrics.episode.finished.shape == (4, 32, 4)


SHARDED = """
import jax, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from tests.on_jax.test_pure_training import SMALL, assert_close, make_agent, make_envs, make_training
training = make_training(SMALL, make_envs, make_agent)
mesh, seeds = Mesh(np.array(jax.devices()), ("seeds",)), PartitionSpec("seeds")
keys = jax.random.split(jax.random.key(0), 4)
init, step = jax.vmap(training.init), jax.vmap(training.step)
states = init(keys)
sharded = jax.jit(init, out_shardings=NamedSharding(mesh, seeds))(keys)
assert_close(states, sharded)
expected, _ = jax.jit(step)(states)
for stepped in (step, jax.shard_map(step, mesh=mesh, in_specs=seeds, out_specs=seeds, check_vma=False)):
    found, metrics = jax.jit(stepped)(sharded)
    assert_close(expected, found)
    assert all(len(x.sharding.device_set) == 2 for x in (found.adam.weights["critic.layers.0.weight"], metrics.valid))
"""


@pytest.mark.long
def test_seeds_shard_over_devices():
    """Four seeds on two devices, by sharded arrays and by shard_map. In a separate process, because the number of
    devices is fixed when JAX starts."""
    env = os.environ | {"JAX_NUM_CPU_DEVICES": "2", "PYTHONPATH": os.getcwd()}
    done = subprocess.run([sys.executable, "-c", SHARDED], env=env, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr[-2000:]


def test_a_loss_of_ones_own_takes_the_shared_inputs():
    def loss_fn(batch, cfg):
        loss = ((batch.value - batch.ret) ** 2 * batch.valid).sum() / batch.count
        return loss, {"loss": loss}

    training = make_training(SMALL, make_envs, make_agent, loss_fn)
    _, metrics = jax.jit(training.step)(training.init(jax.random.key(1)))
    assert set(metrics.losses) == {"loss", "grad_norm", "explained_variance"}


def test_bind_returns_the_agent_with_the_weights_of_a_state():
    """Against the weights by name: the value of an observation of 0 depends on the biases only, which are set here."""
    training = make_training(replace(SMALL, hidden_sizes=(3,)), make_envs, make_agent)
    weights = training.init(jax.random.key(1)).adam.weights
    weights |= {"critic.layers.0.bias": np.float32([0.1, 0.2, 0.3]), "critic.layers.1.bias": np.float32([0.5]),
                "critic.layers.1.weight": np.float32([[1, 2, 3]])}
    dist, value, state = jax.jit(lambda weights, obs: training.bind(weights)(obs, None, None, ()))(weights, np.zeros((2, 4)))
    assert dist.sample(np.float32([[0, 9], [9, 0]])).tolist() == [1, 0] and state == ()
    np.testing.assert_allclose(value, np.full(2, np.tanh([0.1, 0.2, 0.3]) @ [1, 2, 3] + 0.5), rtol=1e-6)


@pytest.mark.parametrize("change,sentence", [({"engine": "gym"}, "is not simulated inside the compiled function"),
                                             ({"num_minibatches": 3}, "num_minibatches=3"),
                                             ({"num_seeds": "three"}, "^num_seeds='three' is not allowed[^\n]*$")])
def test_what_cannot_work_is_refused(change, sentence):
    with pytest.raises(UsageError, match=sentence):
        make_training(replace(SMALL, **change), make_envs, make_agent)
    with pytest.raises(UsageError, match=r"^cfg=<class 'proximo.* is not a configuration\. Pass an object"):
        make_training(type(SMALL), make_envs, make_agent)
    with pytest.raises(UsageError, match=r"^loss_fn=3 is not a function\. Pass \(batch, cfg\) -> "):
        make_training(SMALL, make_envs, make_agent, 3)


def test_a_head_for_other_actions_is_refused():
    """It was trained: actions that the environments do not have were taken for others."""
    def with_five_actions(spec, cfg):
        agent = make_agent(spec, cfg)
        return SeparateAgent(agent.critic, CategoricalHead(agent.head.network, 5))

    with pytest.raises(UsageError, match=r"num_actions=5, and the actions are Discrete\(2\)"):
        make_training(SMALL, make_envs, with_five_actions)


def test_settings_without_effect_are_refused_together():
    """They were ignored."""
    with pytest.raises(UsageError) as caught:
        make_training(replace(SMALL, framework="torch", num_seeds=3, init_from="runs/before", engine="auto", num_minibatches=3),
                      make_envs, make_agent)
    said = str(caught.value)
    assert all(part in said for part in (
        "framework=torch has no effect: make_training trains with JAX", "num_seeds=3 has no effect: make_training makes one",
        "init_from=runs/before has no effect: make_training reads no runs", "num_minibatches=3"))


def test_a_traced_number_in_a_configuration_is_refused_with_what_to_do():
    """It was the text of a ConcretizationTypeError."""
    def final_loss(learning_rate):
        training = make_training(replace(SMALL, learning_rate=learning_rate), make_envs, make_agent)
        return training.step(training.init(jax.random.key(1)))[1].losses["value_loss"]

    said = r"^learning_rate is an array of jax\.vmap, .*\. proximo\.sweep\(\.\.\., learning_rate=\[\.\.\.\]\) trains several .* step\(state, learning_rate=X\)"
    for transformed in (jax.vmap(final_loss), jax.jit(lambda rates: final_loss(rates[0]))):
        with pytest.raises(UsageError, match=said):
            transformed(np.float32([1e-3, 1e-4]))


def test_hyper_parameters_may_be_mapped():
    """Three learning rates and discounts at once are three trainings with constants of them."""
    training = make_training(SMALL, make_envs, make_agent)
    keys, values = jax.random.split(jax.random.key(0), 3), {"learning_rate": [1e-4, 1e-3, 1e-2], "gamma": [0.9, 0.99, 1.0]}

    @jax.jit
    @jax.vmap
    def train_two(key, values):
        return jax.lax.scan(lambda state, _: training.step(state, **values), training.init(key), length=2)

    states, metrics = train_two(keys, {name: np.float32(x) for name, x in values.items()})
    assert metrics.losses["entropy"].shape == (3, 2)
    for k, key in enumerate(keys):
        alone = make_training(replace(SMALL, **{name: x[k] for name, x in values.items()}), make_envs, make_agent)
        expected = alone.init(key)
        for _ in range(2):
            expected, _ = jax.jit(alone.step)(expected)
        assert_close(jax.tree.map(lambda x, k=k: x[k], states.adam.weights), expected.adam.weights)
    assert not np.allclose(*(states.adam.weights["critic.layers.0.weight"][k] for k in (0, 1)), atol=1e-4)


@dataclass(frozen=True)
class WithCoef(Config):
    coef: float = setting(0.5, sweep=True)


def loss_with(coef):
    """The loss of PPO, and the mean squared value times `coef` (cfg)."""
    def loss_fn(batch, cfg):
        loss, stats = ppo_loss(batch, cfg)
        return loss + coef(cfg) * jnp.where(batch.valid, jnp.square(batch.value), 0.0).sum() / batch.count, stats

    return loss_fn


def test_a_field_of_a_program_may_be_traced():
    """It is mapped and differentiated; so is a number that the functions of make_training read, made where it is traced."""
    cfg = WithCoef(**{field: getattr(SMALL, field) for field in ("framework", "engine", "num_envs", "num_steps", "num_minibatches")},
                   hidden_sizes=(16,))
    training = make_training(cfg, make_envs, make_agent, loss_with(lambda cfg: cfg.coef))
    state = training.init(jax.random.key(1))

    def of_field(coef):
        return jnp.square(training.step(state, coef=coef)[0].adam.weights["critic.layers.0.weight"]).sum()

    def of_closure(coef):
        inside = make_training(cfg, make_envs, make_agent, loss_with(lambda _: coef))
        return jnp.square(inside.step(inside.init(jax.random.key(1)))[0].adam.weights["critic.layers.0.weight"]).sum()

    coefs = jnp.float32([0.0, 0.5, 2.0])
    (one, slopes), (other, slopes_again) = (jax.jit(jax.vmap(jax.value_and_grad(f)))(coefs) for f in (of_field, of_closure))
    np.testing.assert_allclose(one, other, rtol=1e-5)
    np.testing.assert_allclose(slopes, slopes_again, rtol=1e-3, atol=1e-6)
    assert len(set(one.tolist())) == 3 and np.abs(slopes).min() > 0
    assert one[1] == pytest.approx(float(jax.jit(of_field)(WithCoef().coef)), rel=1e-5)


def test_an_iteration_is_differentiable_in_hyper_parameters():
    """Against finite differences: the derivative of a sum of the weights after two iterations."""
    training = make_training(replace(SMALL, num_minibatches=1), make_envs, make_agent)
    state = training.init(jax.random.key(1))

    @jax.jit
    def after_two(value):
        now, _ = training.step(state, learning_rate=value)
        now, _ = training.step(now, learning_rate=value)
        return sum(x.sum() for x in now.adam.weights.values())

    value, small = jnp.float32(1e-3), 1e-5
    expected = (after_two(value + small) - after_two(value - small)) / (2 * small)
    assert abs(expected) > 1
    assert float(jax.jit(jax.grad(after_two))(value)) == pytest.approx(float(expected), rel=0.05)


TINY = replace(SMALL, hidden_sizes=(3,), num_steps=4)


@pytest.fixture(scope="module")
def begun():
    """A training and its first state."""
    training = make_training(TINY, make_envs, make_agent)
    return training, training.init(jax.random.key(1))


@pytest.mark.parametrize(("values", "said"), [
    ({"seed": 3}, "step was given seed, which is a constant of the compiled function. It takes learning_rate, "),
    ({"gamma": 1.5, "learning_rate": "x"}, r"^gamma=1\.5 must be between 0 and 1\.\nstep was given learning_rate='x'\. Give it a real number"),
    ({"ent_coef": np.float32(np.nan)}, "ent_coef=nan must be finite"),
    ({"learning_rate": True}, "step was given learning_rate=True. Give it a real number"),
    ({"learning_rate": jnp.complex64(1)}, "of dtype .* Give it a real number"), ({"gamma": jax.random.key(1)}, "of dtype .* Give it a real number"),
    ({"gamma": np.array(None)}, "of dtype .* Give it a real number"), ({"learning_rate": 10**400}, r"^learning_rate=10{50,60} must be finite\.$"),
    ({"learning_rate": np.ones(3)}, r"learning_rate of shape \(3,\)\. Give it one number, and map step over several with jax\.vmap")])
def test_values_that_cannot_be_used_are_told(begun, values, said):
    training, state = begun
    with pytest.raises(UsageError, match=said):
        training.step(state, **values)


def test_values_that_are_traced_have_to_be_real_numbers(begun):
    """A complex learning rate raised an error of JAX inside a loop."""
    training, state = begun
    with pytest.raises(UsageError, match=r"^step was given learning_rate of dtype complex64\. Give it a real number\."):
        jax.eval_shape(training.step, state, learning_rate=1j)


def other_layer_norm(change):
    """The first state of the same training with layer normalisation: it has all weights of TINY, and more."""
    return make_training(replace(TINY, layer_norm=True, **change), make_envs, make_agent).init(jax.random.key(1))


@pytest.mark.parametrize(("call", "said"), [
    (lambda training, state: training.init(jax.random.split(jax.random.key(1), 3)), r"keys of shape \(3,\)\. Give it one key, and map init"),
    (lambda training, state: training.init(3), r"init was given 3\. Give it a key: jax\.random\.key\(SEED\)"),
    (lambda training, state: training.init(jnp.zeros(2)), r"an array float32 \(2,\), which is not a key\. Give it one: jax\.random\.key\(SEED\)"),
    (lambda training, state: training.init(jnp.zeros(3, jnp.uint32)), r"an array uint32 \(3,\), which is not a key"),
    (lambda training, state: training.bind({}), r"critic\.layers\.0\.bias is missing instead of \(3,\).* Give it state\.adam\.weights of one"),
    (lambda training, state: training.bind(state.adam.weights | {"critic.layers.0.bias": jnp.zeros((5, 3))}), r"is \(5, 3\) instead of \(3,\)"),
    (lambda training, state: training.bind(other_layer_norm({}).adam.weights), r"norms\.0\.bias is \(3,\) instead of missing"),
    (lambda training, state: training.step(other_layer_norm({})), r"another state than .*norms\.0\.bias'\] is float32 \(3,\) instead of missing"),
    (lambda training, state: training.step(state._replace(carry=state.carry._replace(statistics=None))), r"state\.carry\.statistics.* is missing instead"),
    (lambda training, state: training.step(state._replace(envs=None)), r"another state than that of this training: state\.envs.* is missing instead"),
    (lambda training, state: training.step(state._replace(iteration=None)), r"another state than that of this training: state\.iteration is missing"),
    (lambda training, state: training.step(state._replace(iteration=1.0)), r"state\.iteration is float32 \(\) instead of int32 \(\)\. Give it what init or"),
    (lambda training, state: training.step(state._replace(envs="x")), r"another state than that of this training: .*<class 'str'>"),
    (lambda training, state: training.step(state._replace(carry=state.carry._replace(obs=state.carry.obs[:2]))), r"float32 \(2, 4\) instead of float32 \(4, 4\)"),
    (lambda training, state: training.bind(state), r"bind was given \S*TrainState\. Give it the weights by name: state\.adam\.weights"),
    (lambda training, state: training.step(state.adam), r"step was given \S*Adam\. Give it the state of one training"),
    (lambda training, state: training.step((state, None)), "step was given tuple. Give it the state of one training"),
    (lambda training, state: training.step(jax.tree.map(lambda x: jnp.stack([x, x]), state)), r"states of shape \(2,\)\. .* with jax\.vmap")])
def test_other_arguments_are_told(begun, call, said):
    """Several keys began one training with the numbers of all of them; the state of a training that does not normalise
    or has other layers was trained, or raised an error of JAX."""
    with pytest.raises(UsageError, match=said):
        call(*begun)


def test_settings_of_jax_that_change_the_numbers_are_refused_everywhere(begun):
    """They were read when the training was made, and a program may change them afterwards. Making one said that the
    environments return float64."""
    training, state = begun
    for call in (lambda: training.step(state), lambda: training.init(jax.random.key(1)),
                 lambda: make_training(TINY, make_envs, make_agent)):
        with jax.enable_x64(True), pytest.raises(UsageError, match="jax_enable_x64=True, and training needs False"):
            call()


def test_a_saved_state_and_a_whole_number_continue_the_same(begun):
    """A state of numpy arrays with the data of its keys, and a learning rate of 1 instead of 1.0."""
    training, state = begun
    saved = jax.tree.unflatten(jax.tree.structure(state), arrays(state))
    found, expected = (jax.jit(training.step)(one, learning_rate=rate)[0] for one, rate in ((saved, 1), (state, 1.0)))
    assert_equal(found, expected)
    assert jax.eval_shape(lambda s: training.step(s, learning_rate=10**20)[0].iteration, state).shape == ()


def test_a_raw_key_begins_the_same_training():
    """The seed of a run is both words of a key."""
    training = make_training(SMALL, make_envs, make_agent)
    assert_equal(training.init(jax.random.key(5)), training.init(jax.random.PRNGKey(5)))
    assert_equal(training.init(jax.random.wrap_key_data(jnp.uint32([1, 5]))).keys, stream_keys(2**32 + 5))


def broken(change):
    """CartPole whose steps are changed."""
    def make_broken(cfg, seeds):
        envs = make_envs(cfg, seeds)
        step = envs.pure.step

        def changed(state, action):
            after, result = step(state, action)
            return after, result._replace(**change(result))

        envs.pure.step = changed
        return envs

    return make_broken


def test_environments_are_checked_as_those_of_train():
    """A reward of another shape was repeated. An end of two kinds, which compiled code cannot refuse, trains nothing."""
    with pytest.raises(EnvError, match=r"step\(\) returned reward .*\. Its shape has to be \(4,\)"):
        make_training(SMALL, broken(lambda step: {"reward": step.reward[0]}), make_agent)
    training = make_training(SMALL, broken(lambda step: {"truncated": step.terminated}), make_agent)
    start = training.init(jax.random.key(1))
    after, _ = jax.jit(training.step)(start)
    assert not after.adam.ok
    assert_equal(after.adam.weights, start.adam.weights)


@pytest.mark.parametrize("bad", ["gradient", "reward"])
def test_no_weight_changes_after_a_gradient_that_is_not_finite(bad):
    """Nor do the moments of --norm-value, which are weights: later returns were counted, and those that are NaN."""
    def loss(batch, cfg):
        found, stats = ppo_loss(batch, cfg)
        return found * jnp.where(jnp.all(batch.ent_coef < 0.008), jnp.nan if bad == "gradient" else 1, 1), stats

    make_envs_of = broken(lambda step: {"reward": step.reward * jnp.where(step.terminated, jnp.nan, 1)}) \
        if bad == "reward" else make_envs
    cfg = replace(CASES["plain"], norm_value=True, anneal_ent="linear", num_steps=8, total_timesteps=128)
    training = make_training(cfg, make_envs_of, make_agent, loss)
    step, state, weights = jax.jit(training.step), training.init(jax.random.key(1)), []
    for _ in range(4):
        state, _ = step(state)
        weights.append({**state.adam.weights, "ok": state.adam.ok})
    first = [bool(one.pop("ok")) for one in weights].index(False)
    for one in weights[first:]:
        assert_equal(one, weights[first])
    assert all(np.isfinite(x).all() for x in weights[-1].values())
    assert weights[-1]["critic.return_count"] == 8 * cfg.num_envs * (first + (bad == "gradient"))


def test_a_network_that_cannot_be_called_is_refused():
    """step raised the exception, far from the network."""
    def failing(spec, cfg):
        return make_agent(spec._replace(obs_shape=(7,)), cfg)

    with pytest.raises(UsageError, match=r"The network raised .* for observations of shape \(4, 4\)\. Correct make_agent"):
        make_training(SMALL, make_envs, failing)
