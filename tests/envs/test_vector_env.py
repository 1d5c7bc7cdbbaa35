"""Gymnasium's VectorEnv as a VecEnv, checked against the loop over single environments, which plays the same episodes."""

import csv
import re
from pathlib import Path

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode, VectorWrapper

import proximo
from proximo.config import Config
from proximo.envs.arrays.spaces import read_space
from proximo.envs.custom.suite import make_complete
from proximo.envs.gym import make_gym
from proximo.envs.vector_env import GymVectorEnvs
from proximo.errors import EnvError, UsageError
from tests.envs.test_contract import as_numpy, as_suite_array, assert_same
from tests.support.play import random_actions
from tests.support.vector_envs import as_tensors, sync_envs, vector_suite

PROBES = "tests.support.probes:"
IDS = ("CartPole-v1", "Pendulum-v1", f"{PROBES}DictObs-v0", f"{PROBES}Rich-v0", f"{PROBES}RichCut-v0", f"{PROBES}Image-v0",
       f"{PROBES}Truncated-v0", f"{PROBES}Several-v0", f"{PROBES}Switches-v0", f"{PROBES}Started-v0", f"{PROBES}Masked-v0",
       f"{PROBES}UnevenEnds-v0", f"{PROBES}Hybrid-v0", "CliffWalking-v1")
TENSORS = [env_id for env_id in IDS if not env_id.endswith(("Hybrid-v0", "CliffWalking-v1"))]
MODES = {"NextStep": "next-step", "SameStep": "same-step", "Disabled": "same-step"}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("env_id", "tensors"), [(env_id, False) for env_id in IDS] + [(env_id, True) for env_id in TENSORS])
def test_steps_are_those_of_single_environments(env_id, tensors, mode):
    """SyncVectorEnv seeds its environments with seed, seed + 1, ...: with these seeds, GymEnvs plays the same."""
    one = make_gym(Config(env_id=env_id, autoreset=MODES[mode]), [5, 6, 7])
    other = vector_suite(mode, tensors)(Config(env_id=env_id), [5, 0, 0])
    assert (other.obs_shape, other.obs_dtype, other.action_space) == (one.obs_shape, one.obs_dtype, one.action_space)
    rng = np.random.default_rng(0)
    expected, step = one.reset(), other.reset()
    for _ in range(250):
        assert_same(expected, as_numpy(step))
        finished = expected.episode.finished
        for name in ("ret", "length"):
            np.testing.assert_allclose(np.asarray(getattr(step.episode, name))[finished],
                                       getattr(expected.episode, name)[finished], rtol=1e-5, atol=1e-6)
        action = random_actions(one, expected, rng)
        expected, step = one.step(action), other.step(as_suite_array(other, action))
    one.close()
    other.close()


@pytest.mark.parametrize("mode", MODES)
def test_rows_are_not_changed_by_later_steps(mode):
    """The rollout buffer and `final_obs` of this step must not be those of the next one."""
    envs = vector_suite(mode)(Config(env_id="CartPole-v1"), [1, 2])
    step = envs.reset()
    kept = [(step.obs, step.obs.copy())]
    for _ in range(40):
        step = envs.step(np.array([0, 1]))
        kept.append((step.obs, step.obs.copy()))
    assert all(np.array_equal(now, then) for now, then in kept)


class InPlace(VectorWrapper):
    """Writes all observations into one array, as many simulators do, and returns no last observation."""

    def __init__(self, envs):
        super().__init__(envs)
        self.obs = np.zeros(envs.observation_space.shape, np.float32)

    def reset(self, *, seed=None, options=None):
        obs, info = self.env.reset(seed=seed, options=options)
        self.obs[:] = obs
        return self.obs, info

    def step(self, actions):
        obs, reward, terminated, truncated, info = self.env.step(actions)
        self.obs[:] = obs
        return self.obs, reward, terminated, truncated, {}


def test_final_obs_before_is_the_observation_before_the_last_action():
    envs = GymVectorEnvs(InPlace(sync_envs("Pendulum-v1", 2, "SameStep")), 1, final_obs="before")
    step = envs.reset()
    for _ in range(200):
        before, step = step.obs.copy(), envs.step(np.zeros((2, 1), np.float32))
    assert step.truncated.all() and np.array_equal(step.final_obs, before) and not np.array_equal(step.obs, before)


def test_truncation_without_a_last_observation_is_refused():
    envs = GymVectorEnvs(InPlace(sync_envs("Pendulum-v1", 2, "SameStep")), 1)
    envs.reset()
    with pytest.raises(EnvError, match=r"^SyncVectorEnv resets in the same step, and info has no 'final_obs'.*final_obs='before'"):
        for _ in range(200):
            envs.step(np.zeros((2, 1), np.float32))


class Strict(VectorWrapper):
    """Ends episodes in both ways at once, rewards the step that only resets, and refuses actions beyond the bounds."""

    def step(self, actions):
        assert self.action_space.contains(actions), actions
        obs, reward, terminated, truncated, info = self.env.step(actions)
        return obs, reward * 0 + 5, truncated, truncated, info


def test_ends_rewards_and_actions_follow_the_rules():
    """Terminated takes precedence; a filler row has no reward; actions are clipped to the bounds."""
    envs = GymVectorEnvs(Strict(sync_envs("Pendulum-v1", 2)), 1)
    envs.reset()
    for _ in range(200):
        step = envs.step(np.array([[7.5], [-7.5]], np.float32))
        assert (step.reward == 5).all() and step.valid.all()
    assert step.terminated.all() and not step.truncated.any() and step.episode.finished.all()
    filler = envs.step(np.zeros((2, 1), np.float32))
    assert not filler.reward.any() and not filler.valid.any() and filler.first.all() and not filler.terminated.any()
    assert (step.episode.ret == 1000).all() and (step.episode.length == 200).all()


def test_what_make_envs_returns_may_be_a_vector_env():
    envs = make_complete(lambda cfg, seeds: gymnasium.make_vec("CartPole-v1", len(seeds)), Config(), [3, 4])
    assert envs.reset().obs.shape == (2, 4) and envs.render_fps == 50
    cfg = Config(info_metrics=("is_success",))
    assert make_complete(lambda cfg, seeds: sync_envs("CartPole-v1", 2), cfg, [3, 4]).metric_names == ("is_success",)
    with pytest.raises(EnvError, match=r"^CartPoleVectorEnv.step\(\) after 0 steps raised"):
        envs.step(np.array([5, 0]))
    with pytest.raises(UsageError, match="num_envs=3, and not one environment"):
        make_complete(lambda cfg, seeds: gymnasium.make_vec("CartPole-v1", 3), Config(), [3, 4])


@pytest.mark.parametrize(("break_it", "sentence"), [
    (lambda envs: envs.metadata.pop("autoreset_mode"), "it is not known when an episode that has ended is reset"),
    (lambda envs: setattr(envs, "single_action_space", gymnasium.spaces.Text(3)), "has the action space Text"),
    (lambda envs: setattr(envs, "single_observation_space", gymnasium.spaces.Text(3)), "has the observation space Text"),
])
def test_what_does_not_suit_is_refused(break_it, sentence):
    envs = sync_envs("CartPole-v1", 2)
    envs.metadata = dict(envs.metadata)
    break_it(envs)
    with pytest.raises(UsageError, match=sentence):
        GymVectorEnvs(envs, 1)


class WithoutSeed(VectorWrapper):
    def reset(self):
        return self.env.reset()


class Lost(VectorWrapper):
    def reset(self, *, seed=None, options=None):
        raise KeyError("robot")


@pytest.mark.parametrize(("wrapper", "error", "sentence"), [
    (WithoutSeed, UsageError, r"SyncVectorEnv\.reset\(\) raised TypeError: .* It has to take the keyword arguments seed and options"),
    (Lost, EnvError, r"SyncVectorEnv\.reset\(\) raised KeyError: 'robot' \(.*test_vector_env\.py, line")])
def test_a_fault_of_the_first_reset_is_named(wrapper, error, sentence):
    """It was an exception without a sentence."""
    with pytest.raises(error, match=f"^{sentence}"):
        make_complete(lambda cfg, seeds: wrapper(sync_envs("CartPole-v1", 2)), Config(), [3, 4])


class Shapeless:
    """Fails in another place than reset()."""

    num_envs, single_observation_space = 2, gymnasium.spaces.Box(-1, 1, (2,))
    metadata = {"autoreset_mode": "NextStep"}


def test_a_vector_env_that_lacks_a_member_is_a_fault_of_make_envs():
    with pytest.raises(EnvError, match="^make_envs raised AttributeError: .*single_action_space"):
        make_complete(lambda cfg, seeds: Shapeless(), Config(), [3, 4])


def test_another_number_of_environments_is_one_problem(tmp_path):
    """A trial with one environment, which the user had not asked for, added a second sentence about 1 seed."""
    with pytest.raises(UsageError) as caught:
        proximo.train("ppo", make_envs=lambda cfg, seeds: sync_envs("CartPole-v1", 3), num_envs=4, run_dir=tmp_path / "run")
    said, = str(caught.value).splitlines()
    assert "num_envs=3, and not one environment" in said and said.endswith("Make len(seeds).")


@pytest.mark.parametrize(("env_id", "what"), [("CliffWalking-v1", "observation space"), (f"{PROBES}Hybrid-v0", "action space")])
def test_tensors_that_have_no_rows_are_refused(env_id, what):
    with pytest.raises(UsageError, match=f"tensors for the {what}"):
        GymVectorEnvs(sync_envs(env_id, 2, tensors=True), 1)


@pytest.mark.parametrize("tensors", [False, True])
def test_observations_that_are_not_finite_are_faults(tensors):
    envs = sync_envs(f"{PROBES}DictObs-v0", 2, tensors=tensors)
    adapted = GymVectorEnvs(envs, 1)
    obs, _ = envs.reset(seed=1)
    obs["vector"][1] = np.nan
    envs.reset = lambda seed: (obs, {})
    with pytest.raises(EnvError, match="is not finite in float32"):
        adapted.reset()


CHOOSING = gymnasium.spaces.Dict(number=gymnasium.spaces.Box(-9, 9, (1,)), choice=gymnasium.spaces.Discrete(3, start=1))


class Told(gymnasium.vector.VectorEnv):
    """Two environments that return what they are told to, and reset in the same step; the first is truncated in each."""

    num_envs, metadata = 2, {"autoreset_mode": AutoresetMode.SAME_STEP}
    single_action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, space, obs, final_obs):
        self.single_observation_space, self.obs, self.final_obs = space, obs, final_obs

    def reset(self, *, seed=None, options=None):
        return self.obs, {}

    def step(self, action):
        convert = torch.as_tensor if torch.is_tensor(action) else np.asarray
        return self.obs, convert(np.zeros(2)), convert(np.zeros(2, bool)), convert(np.array([True, False])), {
            "final_obs": self.final_obs}


def told(space, obs, final_obs, tensors):
    envs = Told(space, *(as_tensors(x) if tensors else x for x in (obs, final_obs)))
    return make_complete(lambda cfg, seeds: GymVectorEnvs(envs, 1), Config(), [1, 2]), torch.zeros(2) if tensors else np.zeros(2)


@pytest.mark.parametrize(("space", "obs", "final_obs", "row"), [
    (CHOOSING, {"number": np.zeros((2, 1), np.float32), "choice": np.array([1, 2])},
     {"number": np.array([[3], [np.nan]], np.float32), "choice": np.array([3, 0])}, None),
    (gymnasium.spaces.Discrete(3, start=1), np.array([1, 2]), np.array([3, 0]), [0, 0, 1]),
    (gymnasium.spaces.Box(-9, 9, (1,)), np.zeros((2, 1), np.float32), np.array([[3], [np.nan]], np.float32), [3])], ids=str)
@pytest.mark.parametrize("tensors", [False, True])
def test_rows_of_final_obs_whose_episode_goes_on_may_have_any_numbers(space, obs, final_obs, row, tensors):
    """They were refused as parts of a structure, and as choices."""
    if tensors and isinstance(space, gymnasium.spaces.Discrete):
        return
    envs, action = told(space, obs, final_obs, tensors)
    envs.reset()
    step = envs.step(action)
    final, now = np.asarray(step.final_obs), np.asarray(step.obs)
    if row is None:
        row = read_space(space, "x").flatten({"number": np.array([3], np.float32), "choice": 3})
    assert step.truncated.tolist() == [True, False] and final.dtype == envs.obs_dtype
    assert final[0].tolist() == list(row) and (final[1] == now[1]).all()


class Unstable(Told):
    """Its second environment terminates where its simulation is not stable; the first goes on, or is cut off there."""

    def __init__(self, space, mode, tensors, cut=False):
        convert = as_tensors if tensors else lambda x: x
        rows = [np.array([[0, 0], x], np.float32) for x in ([1, 1], [1, np.nan])]
        good, bad = (convert(x if isinstance(space, gymnasium.spaces.Box) else {"speed": x}) for x in rows)
        super().__init__(space, good, bad)
        self.metadata, self.last = {"autoreset_mode": mode}, good if mode is AutoresetMode.SAME_STEP else bad
        self.ends = convert((np.array([False, not cut]), np.array([False, cut])))

    def step(self, action):
        reward = self.ends[0] * np.float32(0)
        return self.last, reward, *self.ends, {"final_obs": self.final_obs} if self.last is self.obs else {}


@pytest.mark.parametrize("tensors", [False, True])
@pytest.mark.parametrize("mode", [AutoresetMode.SAME_STEP, AutoresetMode.DISABLED], ids=str)
@pytest.mark.parametrize("space", [gymnasium.spaces.Box(-9, 9, (2,)),
                                   gymnasium.spaces.Dict(speed=gymnasium.spaces.Box(-9, 9, (2,)))], ids=str)
def test_the_last_observation_of_a_terminated_episode_may_have_any_floats(space, mode, tensors):
    """Nobody reads it. It was accepted of a Box, and refused as a part of a structure. That of a cut episode is read."""
    envs = make_complete(lambda cfg, seeds: GymVectorEnvs(Unstable(space, mode, tensors), 1), Config(), [1, 2])
    envs.reset()
    step = envs.step(torch.zeros(2) if tensors else np.zeros(2))
    assert step.terminated.tolist() == [False, True] and step.obs.tolist() == [[0, 0], [1, 1]]
    assert np.isnan(np.asarray(step.final_obs)).tolist() == [[False, False], [False, True]]
    cut = make_complete(lambda cfg, seeds: GymVectorEnvs(Unstable(space, mode, tensors, cut=True), 1), Config(), [1, 2])
    cut.reset()
    with pytest.raises(EnvError, match="is not finite"):
        cut.step(torch.zeros(2) if tensors else np.zeros(2))


@pytest.mark.parametrize("choice", [0, 4])
@pytest.mark.parametrize("tensors", [False, True])
def test_choices_outside_of_their_space_are_faults(choice, tensors):
    """The network got none of the choices; those of single environments are faults, too."""
    obs = {"number": np.zeros((2, 1), np.float32), "choice": np.array([1, choice])}
    with pytest.raises(EnvError, match=r"^Told: observation\['choice'\] has a number that is not in Discrete\(3, start=1\)$"):
        told(CHOOSING, obs, obs, tensors)
    if not tensors:
        with pytest.raises(EnvError, match=rf"^Told: observation is .*{choice}.*, which is not in Discrete"):
            told(CHOOSING["choice"], obs["choice"], obs["choice"], tensors)


@pytest.mark.parametrize("tensors", [False, True])
def test_training_evaluation_and_calls(tmp_path, tensors):
    def make_envs(cfg, seeds):
        envs = sync_envs("CartPole-v1", len(seeds), "SameStep", tensors)
        return envs if not tensors else GymVectorEnvs(envs, seeds[0], metrics=["force"])

    def look(iteration):
        found.append(iteration.call_envs("get_wrapper_attr", "gravity"))

    found = []
    run = proximo.train(make_envs=make_envs, num_envs=4, num_steps=16, total_timesteps=256, eval_every=2, eval_episodes=2,
                        norm_obs=True, run_dir=tmp_path / "run", callbacks=[look])
    assert len(proximo.evaluate(run, episodes=3, make_envs=make_envs).returns) == 3
    assert found[0] == [9.8] * 4
    assert ("charts/force" in (run / "metrics.csv").read_text()) is tensors


class Simulator:
    """Environments as one object that has no method `call`, as simulators of robots."""

    def __init__(self, num_envs):
        envs = sync_envs("Pendulum-v1", num_envs, "SameStep")
        self.num_envs, self.metadata, self.step, self.close, self.reset = num_envs, envs.metadata, envs.step, envs.close, envs.reset
        self.single_observation_space, self.single_action_space = envs.single_observation_space, envs.single_action_space
        self.level = 0

    def harder(self, by):
        self.level += by
        return self.level


def test_methods_and_attributes_of_a_simulator_can_be_called(tmp_path):
    """A curriculum in a callback: environments that are made again get the value that it has set."""
    made = []

    def make_envs(cfg, seeds):
        made.append(Simulator(len(seeds)))
        return made[-1]

    def look(it):
        if it.iteration == 1:
            assert it.call_envs("set_wrapper_attr", "level", 3) == [True] and it.call_envs("harder", 1) == [4]
            for name, error, said in [("levl", UsageError, "no attribute levl. Did you mean level"), ("close", UsageError, "is refused")]:
                with pytest.raises(error, match=said):
                    it.call_envs(*(("set_wrapper_attr", name, 1) if name == "levl" else (name,)))
            with pytest.raises(UsageError, match="Simulator has no method levl"):
                it.call_envs("levl")
            with pytest.raises(EnvError, match="Simulator: harder.. raised TypeError"):
                it.call_envs("harder", "x")
        return {"level": it.call_envs("get_wrapper_attr", "level")[0]}

    proximo.train(make_envs=make_envs, num_envs=2, num_steps=16, num_minibatches=1, total_timesteps=96, checkpoint_every=2,
                  run_dir=tmp_path / "run", callbacks=[look], logger="none")
    assert [one.level for one in made if one.num_envs == 2][-2:] == [4, 3]


def test_values_of_tensors_stay_tensors():
    step = vector_suite("NextStep", tensors=True)(Config(env_id="CartPole-v1"), [1, 2]).reset()
    assert all(isinstance(x, torch.Tensor) for x in (step.obs, step.reward, step.episode.ret))


class Buffers:
    """Agents that count to 3 (the end of the task) or are cut after 5 steps, in the style of PufferLib: buffers are filled in place."""

    render_mode = "rgb_array"

    def __init__(self, num_agents):
        self.num_agents = num_agents
        self.single_observation_space = gymnasium.spaces.Box(0, 5, (2,), np.float32)
        self.single_action_space = gymnasium.spaces.Discrete(2)
        self.observations, self.rewards = np.zeros((num_agents, 2), np.float32), np.zeros(num_agents, np.float32)
        self.terminals, self.truncations = np.zeros(num_agents, np.uint8), np.zeros(num_agents, np.uint8)
        self.episodes = []

    def reset(self, seed=None):
        self.observations[:] = 0
        return self.observations, []

    def step(self, actions):
        self.observations += np.stack([actions, np.ones_like(actions)], 1)
        count, time = self.observations.T
        self.rewards[:] = actions - 0.25
        self.terminals[:] = count == 3
        self.truncations[:] = (time == 5) & (count < 3)
        over = (count == 3) | (time == 5)
        self.episodes += [(float(c - t / 4), int(t)) for c, t in self.observations[over]]
        infos = [{"score": float(c)} for c in count[over]]
        self.observations[over] = 0
        return self.observations, self.rewards, self.terminals, self.truncations, infos

    def render(self):
        return np.full((16, 16, 3), 40 * self.observations[0, 0], np.uint8)

    def close(self):
        pass


def test_the_class_of_the_page_trains_agents_whose_buffers_are_reused(tmp_path):
    """Returns, lengths and scores against what the agents themselves counted; pictures without a base class of Gymnasium."""
    page = (Path(__file__).parents[2] / "docs/coming-from.md").read_text()
    (block,) = (block for block in re.findall(r"```python\n(.*?)```", page, re.S) if "class Puffer" in block)
    names, made = {}, []
    exec(block, names)

    def make_envs(cfg, seeds):
        made.append(Buffers(len(seeds)))
        return GymVectorEnvs(names["Puffer"](made[-1]), seeds[0], autoreset="SameStep", final_obs="before", step_metrics=["score"])

    run = proximo.train(make_envs=make_envs, num_envs=8, num_steps=16, total_timesteps=512, run_dir=tmp_path / "run")
    with open(run / "episodes.csv", newline="") as file:
        logged = [(float(row["return"]), int(row["length"])) for row in csv.DictReader(file)]
    assert len({*logged}) > 3 and sorted(logged) == sorted(end for envs in made for end in envs.episodes)
    assert "charts/score" in (run / "metrics.csv").read_text()
    envs = make_envs(Config(), [1, 2])
    envs.reset()
    steps = [envs.step(np.array([1, 0])) for _ in range(5)]
    assert [step.terminated.tolist() for step in steps] == [[t == 3, False] for t in range(1, 6)]
    assert [step.truncated.tolist() for step in steps] == [[False, t == 5] for t in range(1, 6)]
    assert [step.obs.tolist() for step in steps] == [[[t % 3, t % 3], [0, t % 5]] for t in range(1, 6)]
    assert steps[4].final_obs[1].tolist() == [0, 4] and (envs.render() == 80).all()
