"""Functional environments against Gymnasium's own loop over them, and against definitions in Python."""

import re
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from gymnasium import spaces

import proximo
from proximo.catalog import parts_of
from proximo.envs.custom.suite import make_complete
from proximo.errors import EnvError, UsageError
from proximo.models.play import record_video
from tests.support.runs import same_weights

jax = pytest.importorskip("jax")
func_env = pytest.importorskip("proximo.envs.func_env")
jnp = jax.numpy

CFG = proximo.Config()
TOLD = {"num_envs": 4, "num_steps": 16, "num_minibatches": 2, "total_timesteps": 128, "logger": "none"}


class Walk:
    """A walk over the places 0 to 6 that ends at 6; where it begins, and by how much it moves, is random."""

    observation_space = spaces.Box(0, 7, (2,), np.float32)
    action_space = spaces.Discrete(2, start=5)

    def initial(self, rng):
        return {"place": jax.random.randint(rng, (), 0, 3), "steps": 0}

    def transition(self, state, action, rng):
        return {"place": jnp.clip(state["place"] + jnp.where(action == 6, 1, -1), 0, 6), "steps": state["steps"] + 1}

    def observation(self, state, rng):
        return jnp.stack([state["place"], state["steps"]])

    def reward(self, state, action, next_state, rng):
        return next_state["place"] - 0.5 * action

    def terminal(self, state, rng):
        return state["place"] == 6

    def state_info(self, state):
        return {"action_mask": jnp.stack([state["place"] > 0, True])}


def play(envs, actions):
    """Return the Steps of a VecEnv as dicts of numpy arrays."""
    steps = [envs.reset(), *(envs.step(action) for action in actions)]
    return [{name: np.asarray(x) for name, x in step._asdict().items() if name not in ("metrics", "episode")}
            | {name: np.asarray(x) for name, x in step.episode._asdict().items()} for step in steps]


def test_steps_are_those_of_gymnasium_where_nothing_is_drawn():
    """CartPole of Gymnasium as functions, from the same first state; its functions are called one by one, for one state."""
    cartpole = pytest.importorskip("gymnasium.envs.phys2d.cartpole").CartPoleFunctional()
    transition, reward, terminal = map(jax.jit, (cartpole.transition, cartpole.reward, cartpole.terminal))
    envs = func_env.from_func_env(cartpole, 30)(CFG, [3, 4, 5])
    actions = np.random.default_rng(1).integers(0, 2, (80, 3))
    steps = play(envs, actions)
    state = [steps[0]["obs"][i] for i in range(3)]
    length = np.zeros(3, int)
    for before, (action, step) in enumerate(zip(actions, steps[1:])):
        for i in range(3):
            state[i], old = np.asarray(transition(state[i], action[i], None)), state[i]
            length[i] += 1
            np.testing.assert_allclose(step["final_obs"][i], state[i], rtol=1e-5, atol=1e-6, err_msg=str(before))
            assert step["reward"][i] == reward(old, action[i], state[i], None)
            terminated = bool(terminal(step["final_obs"][i], None))
            assert (step["terminated"][i], step["truncated"][i]) == (terminated, length[i] == 30 and not terminated)
            over = terminated or length[i] == 30
            assert step["first"][i] == step["finished"][i] == over and step["valid"].all()
            if over:
                assert step["length"][i] == step["ret"][i] == length[i]
                assert (np.abs(step["obs"][i]) <= 0.05).all() and (step["obs"][i] != step["final_obs"][i]).all()
                state[i], length[i] = step["obs"][i], 0
            else:
                assert (step["obs"][i] == step["final_obs"][i]).all()
                state[i] = step["obs"][i]
    assert any(step["truncated"].any() for step in steps) and any(step["terminated"].any() for step in steps)


def test_masks_starts_and_ends_of_a_walk():
    """The policy's actions count from 0. Every environment and every episode has first states of its own."""
    envs = func_env.from_func_env(Walk(), 8)(CFG, list(range(64)))
    steps = play(envs, np.ones((20, 64), int))
    assert envs.obs_dtype == np.float32 and steps[0]["obs"].shape == (64, 2)
    for before, after in pairwise(steps):
        assert (after["final_obs"][:, 0] == before["obs"][:, 0] + 1).all()
        assert (after["reward"] == after["final_obs"][:, 0] - 3.0).all()
        assert (after["terminated"] == (after["final_obs"][:, 0] == 6)).all()
        assert (after["mask"] == np.stack([after["obs"][:, 0] > 0, np.ones(64, bool)], 1)).all()
    first = np.concatenate([step["obs"][step["first"], 0] for step in steps])
    assert {*first} == {0, 1, 2} and len({*steps[0]["obs"][:, 0]}) == 3
    left = play(envs, np.zeros((9, 64), int))
    assert [bool(step["truncated"].all()) for step in left] == [False] * 8 + [True, False]


def test_batches_of_one_size_are_compiled_once(caplog):
    """check_env makes three; JAX says what it compiles."""
    make_envs = func_env.from_func_env(Walk(), 30)
    with jax.log_compiles():
        findings = proximo.check_env(make_envs=make_envs)
    assert not [finding for finding in findings if finding.ok is False]
    said = [record.getMessage() for record in caplog.records]
    for name in ("reset", "step"):
        assert sum(line.startswith(f"Finished XLA compilation of jit({name})") for line in said) == 1
    two, three = (make_envs(CFG, range(n)) for n in (2, 3))
    assert two.reset().obs.shape == (2, 2) and three.reset().obs.shape == (3, 2)


def test_a_batch_has_the_attributes_that_its_environment_has_when_it_is_made():
    """Although the first batch, whose functions JAX has compiled, still exists."""
    class Later(Walk):
        def initial(self, rng):
            return super().initial(rng) | {"steps": self.first}

    env = Later()
    env.first = 0
    make_envs = func_env.from_func_env(env)
    one = make_envs(CFG, range(2))
    assert one.reset().obs[:, 1].tolist() == [0, 0]
    env.first = 3
    other = make_envs(CFG, range(2))
    assert other.reset().obs[:, 1].tolist() == [3, 3] and one.reset().obs[:, 1].tolist() == [0, 0]


def test_each_function_has_noise_of_its_own():
    class Noisy(Walk):
        observation_space = spaces.Box(-9, 9, (3,), np.float32)

        def initial(self, rng):
            return jax.random.normal(rng, (2,))

        def transition(self, state, action, rng):
            return jax.random.normal(rng, (2,))

        def observation(self, state, rng):
            return jnp.append(state, jax.random.normal(rng))

        def reward(self, state, action, next_state, rng):
            return jax.random.normal(rng)

        def terminal(self, state, rng):
            return jax.random.normal(rng) > 1

        def state_info(self, state):
            return {}

    steps = play(func_env.from_func_env(Noisy())(CFG, list(range(500))), np.zeros((8, 500), int))
    drawn = np.concatenate([np.column_stack([step["final_obs"], step["reward"], step["terminated"]]) for step in steps[1:]])
    assert np.abs(np.corrcoef(drawn.T) - np.eye(5)).max() < 0.06  # 4,000 rows: 0.016 is the deviation of a coefficient
    assert len(np.unique(drawn[:, :4])) > 0.998 * drawn[:, :4].size  # some numbers of float32 are drawn twice
    assert not any(step["truncated"].any() for step in steps)
    firsts = np.concatenate([step["obs"][step["first"]] for step in steps])
    assert len(np.unique(firsts)) > 0.998 * firsts.size and 0.1 < drawn[:, 4].mean() < 0.22  # 0.159 of a normal are above 1


def test_actions_are_those_of_the_space():
    box = spaces.Box(np.float32([-1, 0]), np.float32([1, np.inf]))
    clipped = func_env._action_of(box)(jnp.array([[-3.0, -3.0], [3.0, 3.0]]))
    assert (clipped == np.array([[-1, 0], [1, 3]])).all()
    moved = func_env._action_of(spaces.MultiDiscrete([2, 3], start=[1, -1]))(jnp.array([[0, 0], [1, 2]]))
    assert (moved == np.array([[1, -1], [2, 1]])).all()


@pytest.mark.parametrize("fields", [{}, {"recurrent": "lstm"}, {"norm_obs": True, "norm_reward": True}])
@pytest.mark.parametrize("framework", ["jax", "torch"])
def test_a_resume_is_exact(framework, fields, tmp_path):
    """With masks and first states that are drawn, in both frameworks."""
    make_envs = func_env.from_func_env(Walk(), 9)

    def train(folder, **more):
        return proximo.train("ppo", make_envs=make_envs, env_id="Walk-v0", framework=framework,
                             run_dir=tmp_path / folder, **TOLD | fields | more)

    def stop(it):
        if it.iteration == 1:
            raise proximo.StopTraining

    train("whole")
    train("halves", callbacks=[stop])
    proximo.resume(tmp_path / "halves", make_envs=make_envs)
    assert same_weights(tmp_path / "whole", tmp_path / "halves")


@pytest.fixture(scope="module", params=["jax", "torch"])
def trained(request, tmp_path_factory):
    """A run of Walk without masks."""
    return proximo.train("ppo", make_envs=func_env.from_func_env(Unmasked(), 9), env_id="Walk-v0", framework=request.param,
                         run_dir=tmp_path_factory.mktemp("trained") / "run", **TOLD)


class Unmasked(Walk):
    def state_info(self, state):
        return {}


class Wider(Unmasked):
    def initial(self, rng):
        return {"place": jnp.zeros(2, int), "steps": 0}

    def observation(self, state, rng):
        return jnp.stack([state["place"][0], state["steps"]])

    def reward(self, state, action, next_state, rng):
        return 0

    def terminal(self, state, rng):
        return False


class Counted(Unmasked):
    def initial(self, rng):
        return Unmasked.initial(self, rng) | {"steps": 0.0, "more": jnp.zeros(3)}

    def transition(self, state, action, rng):
        return state | Unmasked.transition(self, state, action, rng)


@pytest.mark.parametrize(("env", "said"), [
    (Wider, r"have state\['place'\] int32 \(4,\), these have int32 \(4, 2\)\. Resume with the environment of the run\."),
    (Counted, r"have state\['steps'\] int32 \(4,\), these have float32 \(4,\); no state\['more'\], these have float32 \(4, 3\)\. Resume")])
def test_a_resume_with_another_state_is_refused(env, said, trained):
    """Numbers were repeated or converted without a word, or the advice was to move the checkpoint away."""
    with pytest.raises(UsageError, match=f"^The checkpoint's environments {said}"):
        proximo.resume(trained, make_envs=func_env.from_func_env(env(), 9), total_timesteps=256)


def test_a_resume_with_masks_that_were_not_there_is_refused(trained):
    """With JAX, the environments were said to be divided over another number of devices; with torch it was a KeyError."""
    with pytest.raises(UsageError, match=r"have no masks of actions, these have some\. Resume with the environment of the run"):
        proximo.resume(trained, make_envs=func_env.from_func_env(Walk(), 9), total_timesteps=256)


def test_runs_that_train_at_once_are_single_runs(tmp_path):
    """Everything is mapped once more. The bits are the same with one thread. All models know that there were masks."""
    def train(folder, **fields):
        return proximo.train("ppo", make_envs=func_env.from_func_env(Walk(), 9), env_id="Walk-v0", framework="jax",
                             run_dir=tmp_path / folder, threads=1, **TOLD | fields)

    both = train("both", seed=4, num_seeds=2)
    for seed in (4, 5):
        assert same_weights(one := train(str(seed), seed=seed), both / f"seed-{seed}")
        assert proximo.load(one).spec.masked and proximo.load(both / f"seed-{seed}").spec.masked


def test_pictures_are_of_the_first_environment(tmp_path):
    """An environment without `render_image`, or with that of Gymnasium's class, has none."""
    class Drawn(Walk):
        metadata = {"render_fps": 12}

        def render_init(self):
            return 0

        def render_image(self, state, canvas):
            return canvas + 1, np.full((8, 8, 3), 10 * state["place"], np.uint8) + canvas

        def render_close(self, canvas):
            self.closed = canvas

    env = Drawn()
    envs = func_env.from_func_env(env)(CFG, [1, 2])
    assert envs.render() is None and envs.render_fps == 12
    for drawn, begin_or_step in enumerate([envs.reset, lambda: envs.step(np.array([1, 0]))]):
        place = int(begin_or_step().obs[0, 0])
        assert (envs.render() == 10 * place + drawn).all()
    envs.close()
    assert env.closed == 2
    for other in (Walk(), pytest.importorskip("gymnasium.experimental.functional").FuncEnv()):
        other.observation_space, other.action_space = Walk.observation_space, Walk.action_space
        pure = func_env.FuncPure(other, 1)
        assert pure.render(func_env.FuncState(inner=np.zeros(1), running=None, key=None)) is None
        pure.close()


def test_a_video_without_pictures_names_the_functions(tmp_path):
    """It spoke of render() and render_mode, which functions of JAX do not have."""
    make_envs = func_env.from_func_env(Walk(), 9)
    run = proximo.train("ppo", make_envs=make_envs, env_id="Walk-v0", framework="jax", run_dir=tmp_path / "run", threads=1, **TOLD)
    parts = parts_of("ppo", "torch")._replace(make_envs=make_envs, rows_per_game=lambda cfg: 1)
    with pytest.raises(UsageError, match="Walk-v0 cannot be drawn: an environment in JAX needs the functions render_init, render_image"):
        record_video(proximo.load(run), parts, tmp_path / "video.gif")


@pytest.mark.parametrize(("change", "limit", "said"), [
    ({"observation_space": spaces.Discrete(7)}, 9, r"Changed.observation_space=Discrete\(7\) is not a Box of one axis or more. Return"),
    ({"observation_space": spaces.Box(0, 1, ())}, 9, "is not a Box of one axis or more"),
    ({"observation_space": spaces.Dict(a=spaces.Box(0, 1, (2,)), b=spaces.Discrete(2))}, 9, "has a part that is not a vector of floats"),
    ({"observation_space": spaces.Dict(a=spaces.Box(0, 1, (9, 9, 3)))}, 9, "has a part that is not a vector of floats"),
    ({"observation_space": spaces.Dict(a=spaces.Box(0, 1, (2,)), action_mask=spaces.Box(0, 1, (2,)))}, 9,
     "^Changed.observation_space has the part action_mask. Leave it out"),
    ({"observation_space": spaces.Box(0, 9, (2,), np.int64)}, 9, "has the dtype int64, which JAX does not have"),
    ({"action_space": spaces.Dict(a=spaces.Discrete(2))}, 9, "Changed.action_space=Dict.* is not supported. Use Discrete"),
    ({"action_space": spaces.MultiDiscrete([[2, 3]])}, 9, "is not supported"), ({}, 2.5, "max_episode_steps=2.5 is not allowed"),
    ({}, "9", "max_episode_steps='9' is not"), ({}, True, "max_episode_steps=True is not"),
    ({}, 0, "max_episode_steps=0 is not allowed. Use a whole number from 1, or None")])
def test_what_cannot_be_a_batch_is_refused_at_once(change, limit, said):
    changed = type("Changed", (Walk,), change)
    with pytest.raises(UsageError, match=said):
        func_env.from_func_env(changed(), limit)


def test_what_is_no_environment_is_refused():
    class Nothing:
        observation_space = action_space = None

    with pytest.raises(UsageError, match=r"Walk is a class. Give an environment: Walk\(\)."):
        func_env.from_func_env(Walk)
    with pytest.raises(UsageError, match="Nothing lacks initial, transition, observation, reward, terminal of a functional"):
        func_env.from_func_env(Nothing())


def test_an_environment_may_have_no_state_and_masks_in_parts():
    class Stateless(Walk):
        action_space = spaces.MultiDiscrete([2, 3])

        def initial(self, rng):
            return ()

        def transition(self, state, action, rng):
            return state

        def observation(self, state, rng):
            return jnp.zeros(2)

        def reward(self, state, action, next_state, rng):
            return action.sum()

        def terminal(self, state, rng):
            return False

        def state_info(self, state):
            return {"action_mask": ([True, False], [True, True, False])}

    first, step = play(func_env.from_func_env(Stateless(), 5)(CFG, [1, 2, 3]), np.array([[[0, 1]] * 3]))
    assert first["mask"].tolist() == [[True, False, True, True, False]] * 3 and step["reward"].tolist() == [1, 1, 1]


def test_a_state_may_hold_keys_of_any_generator():
    class Keyed(Walk):
        def initial(self, rng):
            return {"place": 0, "steps": 0, "key": jax.random.key(jax.random.randint(rng, (), 0, 99), impl="rbg")}

        def transition(self, state, action, rng):
            return Walk.transition(self, state, action, rng) | {"key": jax.random.split(state["key"])[0]}

    envs, other = (func_env.from_func_env(Keyed(), 9)(CFG, seeds) for seeds in ([1, 2], [3, 4]))
    play(envs, np.ones((3, 2), int))
    other.load(envs.state())
    same = jax.tree.map(lambda one, two: bool((jax.random.key_data(one) == jax.random.key_data(two)).all()),
                        envs._state.inner["key"], other._state.inner["key"])
    assert same


@pytest.mark.parametrize(("change", "said"), [
    ({"observation": lambda self, state, rng: jnp.zeros(3)},
     r"^Changed.observation\(\) returned an array of shape \(3,\), and observation_space has the shape \(2,\)\. Return"),
    ({"reward": lambda self, *given: jnp.zeros(2)}, r"^Changed.reward\(\) returned an array of shape \(2,\). Return one number"),
    ({"transition": lambda self, state, action, rng: state | {"place": 0.5}}, r"^Changed.transition\(\) returned a state of another .* than "
     r"initial\(\): state\['place'\] is float32 \(4,\) instead of int32 \(4,\). All states need"),
    ({"terminal": lambda self, state, rng: state["nothing"]}, r"^Changed raised KeyError: 'nothing' \(.*test_func_env\.py, line"),
    ({"terminal": lambda self, state, rng: 0.3}, r"^Changed.terminal\(\) returned float32\. Return whether .*, as bool"),
    ({"reward": lambda self, state, *given: 1 if state["place"] > 1 else 0}, "line [0-9]+ needs the value of a number of JAX"),
    ({"state_info": lambda self, state: {"action_mask": jnp.zeros(2, bool)}},
     r"^environment 0 \(Changed\), step 0: the mask allows no action"),
    ({"state_info": lambda self, state: {"action_mask": jnp.array([0, -jnp.inf])}},
     r"^Changed.state_info\(\) returned an action_mask of float32\. Return True for an action that is allowed")])
def test_a_function_that_is_wrong_is_named_before_training(change, said):
    make_envs = func_env.from_func_env(type("Changed", (Walk,), change)())
    with pytest.raises(EnvError, match=said):
        next(proximo.iterations("ppo", make_envs=make_envs, env_id="Walk-v0", framework="jax", **TOLD))


@pytest.mark.parametrize(("dtype", "found", "fits"), [
    (np.int32, jnp.float32, False), (np.uint8, jnp.float32, False), (np.uint8, jnp.int32, False), (np.float16, jnp.float32, False),
    (np.float32, jnp.int32, True), (np.float32, jnp.bfloat16, True), (np.float32, bool, True), (np.uint8, bool, True)])
def test_the_dtype_of_the_space_has_to_hold_observations(dtype, found, fits):
    """Observations in [0, 1] in a space of whole numbers were zeros, and 300 in uint8 was another number."""
    class Changed(Walk):
        observation_space = spaces.Box(0, 7, (2,), dtype)

        def observation(self, state, rng):
            return jnp.ones(2, found)

    envs = func_env.from_func_env(Changed())(CFG, [1, 2])
    if fits:
        (step,) = play(envs, [])
        assert step["obs"].dtype == dtype and (step["obs"] == 1).all()
        return
    said = rf"^Changed.observation\(\) returned {jnp.dtype(found)}, and observation_space has the dtype {np.dtype(dtype)}, which does not"
    with pytest.raises(UsageError, match=said):
        envs.reset()


@pytest.mark.filterwarnings("error")
def test_a_space_of_float64_has_observations_of_float32():
    """JAX has no other floats, and warned of the dtype in every run."""
    class Double(Walk):
        observation_space = spaces.Box(0, 7, (2,), np.float64)

        def observation(self, state, rng):
            return jnp.ones(2)

    envs = make_complete(func_env.from_func_env(Double()), CFG, [1, 2])
    assert envs.obs_dtype == envs.reset().obs.dtype == np.float32


@pytest.mark.parametrize(("space", "shape"), [
    (spaces.Box(0, 255, (16, 16, 12), np.uint8), (12, 16, 16)), (spaces.Box(0, 255, (12, 10, 3), np.uint8), (3, 12, 10)),
    (spaces.Box(0, 1, (10, 10, 4), np.float32), (4, 10, 10)), (spaces.Box(0, 255, (3, 12, 10), np.uint8), (3, 12, 10)),
    (spaces.Box(0, 255, (12, 10), np.uint8), (1, 12, 10)), (spaces.Box(-9, 9, (10, 10, 4), np.float32), (10, 10, 4))], ids=str)
def test_images_have_their_channels_first(space, shape):
    """Those of channels last were refused, or read as pictures of other channels."""
    class Painted(Walk):
        observation_space = space

        def observation(self, state, rng):
            return jnp.arange(np.prod(space.shape)).reshape(space.shape).astype(space.dtype)

    envs = func_env.from_func_env(Painted(), 2)(CFG, [1, 2])
    steps = play(envs, np.ones((3, 2), int))
    picture = np.arange(np.prod(space.shape)).reshape(space.shape).astype(space.dtype)
    wanted = picture if space.shape == shape else picture[None] if len(space.shape) == 2 else np.moveaxis(picture, -1, 0)
    assert envs.obs_shape == shape and envs.observation_space == space
    assert all((step[name] == wanted).all() for step in steps for name in ("obs", "final_obs"))


def test_pictures_with_channels_last_train_a_convolution(tmp_path):
    """As the pictures of MinAtar; the model takes them as the environment returns them."""
    class Painted(Walk):
        observation_space = spaces.Box(0, 1, (10, 10, 4), np.float32)

        def observation(self, state, rng):
            return jnp.zeros((10, 10, 4), bool).at[state["place"], 0, 1].set(True)

    make_envs = func_env.from_func_env(Painted(), 9)
    run = proximo.train("ppo", make_envs=make_envs, env_id="Painted", framework="jax", model="impala", run_dir=tmp_path / "run", **TOLD)
    model = proximo.load(run)
    assert model.predict(np.zeros((3, 10, 10, 4), np.float32)).shape == (3,)
    assert max(proximo.evaluate(run, episodes=2, make_envs=make_envs).lengths) <= 9


def test_a_time_limit_may_be_a_number_of_numpy():
    envs = func_env.from_func_env(Walk(), np.int64(2))(CFG, [1, 2])
    assert [step["truncated"].all() for step in play(envs, np.zeros((3, 2), int))] == [False, False, True, False]


def test_an_environment_with_the_functions_of_gymnax(tmp_path):
    """The class of docs/coming-from.md around the functions that gymnax has."""
    page = (Path(__file__).parents[2] / "docs" / "coming-from.md").read_text()
    (block,) = (block for block in re.findall(r"```python\n(.*?)```", page, re.S) if "class Gymnax" in block)
    names = {}
    exec(block, names)

    class Steps:
        def action_space(self, params):
            return spaces.Discrete(2)

        def observation_space(self, params):
            return spaces.Box(0, 1, (2, 3))

        def reset_env(self, key, params):
            return jnp.zeros((2, 3)), {"time": 0}

        def step_env(self, key, state, action, params):
            time = state["time"] + 1
            return jnp.full((2, 3), 1.0 * time), {"time": time}, action.astype(jnp.float32), time >= params, {}

    envs = func_env.from_func_env(names["Gymnax"](Steps(), 7), 5)(CFG, [1, 2])
    steps = play(envs, np.ones((6, 2), int))
    assert [step["truncated"].all() for step in steps] == [False] * 5 + [True, False]
    assert (steps[5]["final_obs"] == 5).all() and (steps[5]["ret"] == 5).all() and (steps[6]["obs"] == 1).all()


@pytest.mark.parametrize("given", [
    {"env": Walk()}, {"env": Walk}, {"make_envs": Walk()}, {"make_envs": lambda cfg, seeds: Walk()}],
    ids=["object", "class", "as make_envs", "returned"])
def test_a_functional_environment_elsewhere_is_told_where_it_belongs(given, tmp_path):
    with pytest.raises(UsageError, match=r"A functional environment is passed as .*make_envs=from_func_env\(ENV\)"):
        proximo.train("ppo", env_id="Walk", framework="jax", run_dir=tmp_path / "run", **TOLD, **given)


def test_a_function_that_is_returned_instead_of_passed(tmp_path):
    with pytest.raises(UsageError, match="make_envs returned function, which lacks .* Pass this function as make_envs itself"):
        proximo.train("ppo", make_envs=lambda cfg, seeds: func_env.from_func_env(Walk()), env_id="Walk", framework="jax",
                      run_dir=tmp_path / "run", **TOLD)


@pytest.mark.parametrize("setting", [{"env_kwargs": ["a=1"]}, {"frame_stack": 4}, {"env_workers": 2}, {"engine": "envpool"},
                                     {"info_metrics": ["x"]}, {"autoreset": "next-step"}], ids=str)
def test_settings_without_effect_are_refused(setting, tmp_path):
    """They were recorded, and applied to nothing."""
    with pytest.raises(UsageError, match=f"{next(iter(setting))}=.* has no effect on environments of from_func_env"):
        proximo.train("ppo", make_envs=func_env.from_func_env(Walk()), env_id="Walk", framework="jax", run_dir=tmp_path / "run",
                      **TOLD, **setting)


def test_a_state_without_an_allowed_action_is_a_fault_of_the_environment(tmp_path):
    """Nothing can raise inside of the compiled function, so the message names the iteration. The exit code is 3."""
    class Stuck(Walk):
        def terminal(self, state, rng):
            return False

        def state_info(self, state):
            return {"action_mask": jnp.stack([state["steps"] < 3, state["steps"] < 3])}

    with pytest.raises(EnvError, match=r"^environment 0: its action_mask allows no action at the end of iteration 1 \(seed 1\), which "
                                       r"began after 0 steps\. Allow at least one"):
        proximo.train(make_envs=func_env.from_func_env(Stuck()), framework="jax", run_dir=str(tmp_path / "run"), **TOLD)


class Asymmetric(Walk):
    """The policy sees one number, the value function also the place."""

    observation_space = spaces.Dict(policy=spaces.Box(-9, 9, (1,)), critic=spaces.Box(-9, 9, (2,)))

    def observation(self, state, rng):
        return {"policy": jnp.ones(1), "critic": jnp.stack([state["place"], 3])}


def test_a_dict_of_vectors_is_a_row_in_the_order_of_its_space(tmp_path):
    """critic_obs works in JAX, as with other environments."""
    envs = func_env.from_func_env(Asymmetric(), 5)(CFG, [1, 2])
    obs = np.asarray(envs.reset().obs)
    assert envs.obs_shape == (3,) and obs.dtype == np.float32
    assert (obs[:, [0, 2]] == [1, 3]).all() and {*obs[:, 1]} <= {0, 1, 2}
    run = proximo.train("ppo", make_envs=func_env.from_func_env(Asymmetric(), 5), framework="jax", critic_obs="critic", num_envs=4,
                        num_steps=8, num_minibatches=2, total_timesteps=64, run_dir=tmp_path / "run", logger="none")
    assert proximo.load(run).act({"policy": np.ones((3, 1), np.float32)}).shape == (3,)


@pytest.mark.parametrize(("given", "said"), [
    ({"policy": np.ones(1)}, "returned a dict with policy, and observation_space is a Dict with policy, critic"),
    (np.ones(3), "returned ndarray, and observation_space is a Dict with"),
    ({"policy": np.ones(2), "critic": np.ones(2)}, r"observation\(\)\['policy'\] returned an array of shape \(2,\), and observation_space"),
])
def test_a_dict_that_does_not_fit_its_space_is_refused(given, said):
    changed = type("Changed", (Asymmetric,), {"observation": lambda self, state, rng: given})
    with pytest.raises(UsageError, match=said):
        func_env.from_func_env(changed(), 5)(CFG, [1, 2]).reset()


def test_a_step_around_the_compiled_function_is_refused():
    """The compiled function does not call it: the rewards of the environments were learned without a word."""
    class Doubled:
        def __init__(self, envs):
            self.envs = envs

        def __getattr__(self, name):
            return getattr(self.envs, name)

        def step(self, action):
            step = self.envs.step(action)
            return step._replace(reward=2 * step.reward)

    def make_envs(cfg, seeds):
        return Doubled(func_env.from_func_env(Walk(), 30)(cfg, seeds))

    with pytest.raises(UsageError, match=r"make_envs returned Doubled with a step\(\) of its own, around environments in JAX"):
        next(proximo.iterations("ppo", make_envs=make_envs, env_id="Walk-v0", framework="jax", **TOLD))
    assert next(proximo.iterations("ppo", make_envs=make_envs, env_id="Walk-v0", **TOLD)).iteration == 1
