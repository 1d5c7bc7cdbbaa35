"""Environments from a function of the user's are checked before training."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch.utils._pytree import tree_map_only

import proximo
from proximo.envs.custom.attributes import is_numpy_dtype
from proximo.envs.custom.pure import CheckedPure, state_difference
from proximo.envs.custom.rules import check_fillers
from proximo.envs.custom.steps import first_without_choice, state_problem
from proximo.envs.custom.suite import MEMBERS, make_complete
from proximo.envs.gym import make_gym
from proximo.errors import EnvError, NumbersError, UsageError
from proximo.on_torch.compile import compiled as compiled_module
from proximo.protocols import Step
from tests.support.batched import Carts, make_carts
from tests.support.runs import same_weights


class Wrapped:
    """Has everything, by __getattr__; `keeps_state` must not be read before the first reset."""

    def __init__(self, envs):
        self.envs = envs

    def __getattr__(self, name):
        return getattr(self.envs, name)

    @property
    def keeps_state(self):
        raise AssertionError("was read")


class Bare:
    num_envs = 4

    def step(self, action):
        """A method that it has."""


def test_everything_that_is_missing_is_named_at_once(tmp_path):
    with pytest.raises(UsageError) as caught:
        proximo.train(make_envs=lambda cfg, seeds: Bare(), total_timesteps=1024, run_dir=tmp_path / "run")
    said = str(caught.value)
    assert "make_envs returned Bare, which lacks" in said and "batched-environments.md" in said
    named = {word.strip(",") for word in said.partition("lacks")[2].split()}
    assert named >= {*MEMBERS} - {"num_envs", "step"} and not named & {"num_envs", "step"}
    assert not (tmp_path / "run").exists()


def test_another_number_of_environments_is_refused():
    """Steps would be counted wrong."""
    cfg = proximo.Config(num_envs=4, total_timesteps=1024)
    with pytest.raises(UsageError, match="make_envs returned GymEnvs with num_envs=8, and not one .* Make len"):
        proximo.iterations(cfg, make_envs=lambda cfg, seeds: make_gym(cfg, [*seeds, *seeds])).__next__()


def test_metrics_that_are_not_returned_are_refused():
    """They were an empty column."""
    cfg = proximo.Config(num_envs=4, info_metrics=("is_success",))
    with pytest.raises(UsageError, match=r"with metric_names=\(\), and info_metrics asks for is_success. Return it"):
        make_complete(lambda cfg, seeds: make_gym(proximo.Config(), seeds), cfg, [1, 2])


def test_a_wrapper_is_complete_and_no_property_is_read():
    cfg = proximo.Config(num_envs=1)
    envs = make_complete(lambda cfg, seeds: Wrapped(make_gym(cfg, seeds)), cfg, [0])
    assert envs.num_envs == 1 and envs.reset().obs.shape == (1, 4)
    envs.close()


@pytest.mark.parametrize(("name", "words"), [
    ("episodic_return", "episodic_return, which the log writes itself"), ("SPS", "SPS, which the log"),
    ("learning_rate", "learning_rate, which the log"), ("a,b", "'a,b'. Use printable characters without comma"),
    ("a\nb", r"'a\nb'. Use printable"), ("", "''. Use printable")])
def test_a_metric_with_the_name_of_another_column_is_refused(name, words):
    """The return of the log was replaced by the metric, and a comma moved all columns after it."""
    class Named(Carts):
        metric_names = (name, "speed")

    with pytest.raises(UsageError) as error:
        make_complete(lambda cfg, seeds: Named(len(seeds), 0), None, [0])
    said, = str(error.value).splitlines()
    assert f"make_envs returned Named with the metric name {words}" in said


def test_a_player_that_can_be_no_column_is_refused():
    class Named(Carts):
        players = ("red", "blue, left")

    with pytest.raises(UsageError, match=r"make_envs returned Named with the player 'blue, left'\. Use printable"):
        make_complete(lambda cfg, seeds: Named(len(seeds), 0), None, [0, 1])


@pytest.mark.parametrize("name", ["reward", "terminated", "valid", "action", "ret", "length"])
def test_a_metric_with_the_name_of_a_part_of_the_rollout_changes_nothing(name):
    """It replaced that part: an agent learned from rewards that were the metric."""
    def weights(name):
        class Named(Carts):
            metric_names = (name,)

            def made(self, *given):
                step = super().made(*given)
                return step._replace(metrics={name: 100 * step.metrics["reward_position"]})

        *_, it = proximo.iterations("ppo_continuous_action", make_envs=lambda cfg, seeds: Named(len(seeds), seeds[0]),
                                    **TOLD)
        return it.weights(), it.stats[f"charts/{name}"]

    (found, chart), (expected, other) = weights(name), weights("position")
    assert chart == other < 0 and all((found[key] == expected[key]).all() for key in expected)


@pytest.mark.parametrize("arrays", ["torch", "numpy"])
def test_an_environment_may_change_the_actions_that_it_gets(arrays):
    """They were those of the rollout: clipping them in place changed what was learned."""
    def weights(spoil):
        class Clipping(Carts):
            def step(self, action):
                step = super().step(torch.as_tensor(action))
                action[:] = 0 if spoil else action
                return step if self.arrays == "torch" else as_numpy(step)

            def reset(self):
                step = super().reset()
                return step if self.arrays == "torch" else as_numpy(step)

        Clipping.arrays = arrays
        *_, it = proximo.iterations("ppo_continuous_action", make_envs=lambda cfg, seeds: Clipping(len(seeds), seeds[0]),
                                    **TOLD)
        return it.weights()

    found, expected = weights(True), weights(False)
    assert all((found[name] == expected[name]).all() for name in expected)


@pytest.mark.parametrize("fields", [{}, {"compile": True, "compile_with": "inductor"}], ids=["eager", "compiled"])
def test_observations_of_another_dtype_are_those_of_obs_dtype(fields, monkeypatch):
    """They were converted only in the rollout: the first one and those at a time limit reached the network as float64."""
    monkeypatch.setattr(compiled_module, "fuse", lambda graph, changed, name: graph)

    class Wide(Carts):
        def made(self, *given):
            step = super().made(*given)
            return step._replace(obs=step.obs.double(), final_obs=step.final_obs.double())

    def weights(kind):
        *_, it = proximo.iterations("ppo_continuous_action", make_envs=lambda cfg, seeds: kind(len(seeds), seeds[0]),
                                    **TOLD | fields)
        return it.weights()

    found, expected = weights(Wide), weights(Carts)
    assert all((found[name] == expected[name]).all() for name in expected)


def as_numpy(step):
    """The same step with arrays of numpy."""
    return tree_map_only(torch.Tensor, lambda x: x.numpy().copy(), step)


TOLD = {"num_envs": 8, "num_minibatches": 1, "num_steps": 30, "total_timesteps": 480, "logger": "none",
        "norm_obs": False, "norm_reward": False}


def train_carts(change_step, **fields):
    """Train with carts of which every step is changed."""
    class Changed(Carts):
        def step(self, action):
            return change_step(super().step(action))

    for name in ("arrays", "metric_names"):
        setattr(Changed, name, fields.pop(name, getattr(Carts, name)))
    for _ in proximo.iterations("ppo_continuous_action", make_envs=lambda cfg, seeds: Changed(len(seeds), seeds[0]),
                                **TOLD | fields):
        pass


def test_what_keeps_the_contract_passes():
    """Numbers of another precision are converted, and a metric may be one number for all environments."""
    train_carts(lambda step: step._replace(obs=step.obs.double(), metrics={"reward_position": torch.ones(())}))


@pytest.mark.parametrize(("change", "said"), [
    (lambda step: step._replace(reward=step.reward.mean()), r"reward of shape \(\) .* has to be \(8,\)"),
    (lambda step: step._replace(reward=step.reward[:, None]), r"reward of shape \(8, 1\)"),
    (lambda step: step._replace(obs=step.obs[:, :1]), r"obs of shape \(8, 1\) .* has to be \(8, 2\)"),
    (lambda step: step._replace(final_obs=step.obs[0]), r"final_obs of shape \(2,\)"),
    (lambda step: step._replace(obs={"policy": step.obs}), r"obs as dict"),
    (lambda step: step._replace(terminated=step.terminated.long()), r"terminated .* int64. Its dtype has to be bool"),
    (lambda step: step._replace(reward=step.reward.numpy()), r"arrays='torch' promises .* set arrays='numpy'"),
    (lambda step: step._replace(metrics={}), r"metrics \[\], but metric_names is \['reward_position'\]"),
    (lambda step: step._replace(metrics={"reward_position": step.obs}), r"metric reward_position of shape \(8, 2\)"),
    (lambda step: step._replace(episode=None), r"episode.finished as NoneType. Its shape has to be \(8,\)"),
    (lambda step: step._replace(mask=step.first[:, None]), r"a mask, but the action space is Box"),
    (lambda step: (step.obs, step.reward), r"tuple. Return proximo.protocols.Step"),
])
def test_a_step_that_would_be_repeated_or_misread_is_refused(change, said):
    """One reward or one column of observations would be copied to all of them, without a word."""
    with pytest.raises(UsageError, match=rf"Changed.step\(\) returned .*{said}"):
        train_carts(change)


MASK = torch.ones(8, 3, dtype=torch.bool)


@pytest.mark.parametrize(("first", "later", "said"), [
    (None, MASK, r"step\(\) returned a mask, and reset\(\) none. Return a mask from reset\(\) and from every"),
    (MASK, None, r"step\(\) returned no mask, and reset\(\) one"),
    (MASK, MASK[0], r"step\(\) returned mask of shape \(3,\) .* has to be \(8, 3\)"),
    (MASK[:, :1], MASK, r"reset\(\) returned mask of shape \(8, 1\) .* has to be \(8, 3\)"),
    (MASK.float(), MASK, r"reset\(\) returned mask .* float32. Its dtype has to be bool"),
])
def test_masks_that_would_be_repeated_or_read_again_are_refused(first, later, said):
    """One mask would be copied to all environments, and one that is missing leaves that of an earlier rollout."""
    class Masked(Carts):
        action_space = spaces.Discrete(3)

        def reset(self):
            return super().reset()._replace(mask=first)

        def step(self, action):
            return super().step(action[:, None].float())._replace(mask=later)

    with pytest.raises(UsageError, match=f"Masked.{said}"):
        for _ in proximo.iterations("ppo", make_envs=lambda cfg, seeds: Masked(len(seeds), seeds[0]), **TOLD):
            pass


def test_an_episode_that_begins_without_the_last_observation_of_the_one_before_is_refused():
    """The value of the next episode's first observation would be taken for that of the last one."""
    with pytest.raises(UsageError, match="Changed: an episode begins .* final_obs is None"):
        train_carts(lambda step: step._replace(final_obs=None))


class NextStep(Carts):
    """Returns no last observation. `how` says what the step after an end is."""

    how = "filler"

    def reset(self):
        self.ended = torch.zeros(self.num_envs, dtype=torch.bool)
        return super().reset()._replace(final_obs=None)

    def step(self, action):
        step, before = super().step(action), self.ended
        over = (step.terminated | step.truncated) & ~before
        self.ended = over if self.how != "silent" else torch.zeros_like(over)
        first = before if self.how == "filler" else torch.zeros_like(before)
        return step._replace(final_obs=None, first=first, valid=~first, terminated=step.terminated & over,
                             truncated=step.truncated & over)


@pytest.mark.parametrize(("how", "said"), [("silent", "the filler rows of a step"), ("first never", "the filler rows of a step"),
                                           ("filler", "")])
def test_a_reset_that_is_not_announced_is_refused(how, said):
    """The value of the next episode's first observation would be that of the last one, also in the recurrent state."""
    def play():
        class Changed(NextStep):
            pass

        Changed.how = how
        for _ in proximo.iterations("ppo_continuous_action", make_envs=lambda cfg, seeds: Changed(len(seeds), seeds[0]),
                                    num_envs=4, num_steps=32, total_timesteps=256, num_minibatches=2):
            pass

    if said:
        with pytest.raises(UsageError, match=f"Changed: final_obs is None, and {said}"):
            play()
    else:
        play()


@pytest.mark.parametrize(("first", "valid", "ended", "refused"), [
    ([True, False], [False, True], [True, False], False), ([False, False], [True, True], [False, False], False),
    ([True, False], [True, True], [True, False], True), ([True, False], [False, False], [True, False], True),
    ([False, False], [False, True], [True, False], True), ([True, False], [False, True], [False, False], True),
    ([False, False], [True, False], [False, False], True)])
@pytest.mark.parametrize("kind", [np.array, torch.tensor])
def test_which_rows_are_fillers(first, valid, ended, refused, kind):
    """Exactly those whose episode ended in the step before."""
    step = Step(None, kind(first), None, None, None, None, None, kind(valid), None, {})
    if refused:
        with pytest.raises(UsageError, match="Rows: final_obs is None, and the filler rows"):
            check_fillers(step, kind(ended), "Rows")
    else:
        check_fillers(step, kind(ended), "Rows")


def test_the_first_step_after_load_may_be_a_filler():
    """What ended before the checkpoint is not known."""
    class Loaded(NextStep):
        def load(self, state):
            self.ended = torch.ones(self.num_envs, dtype=torch.bool)

    envs = make_complete(lambda cfg, seeds: Loaded(2, 0), proximo.Config(), [0, 1])
    envs.reset()
    envs.step(torch.zeros(2, 1))
    envs.load({})
    assert not envs.step(torch.zeros(2, 1)).valid.any()
    assert envs.step(torch.zeros(2, 1)).valid.all()


@pytest.mark.parametrize("field", ["first", "valid"])
def test_a_reset_begins_every_row(field):
    class Changed(Carts):
        def reset(self):
            return super().reset()._replace(**{field: torch.zeros(self.num_envs, dtype=torch.bool)})

    with pytest.raises(UsageError, match=r"Changed.reset\(\) returned first or valid with False"):
        make_complete(lambda cfg, seeds: Changed(4, 0), proximo.Config(), [0, 1, 2, 3]).reset()


def test_a_state_is_copied():
    """One that the environments change later would be that of another step in a checkpoint."""
    class Kept(Carts):
        keeps_state = True

        def state(self):
            return {"time": self.counts, "list": [self.counts]}

        def step(self, action):
            self.counts += 1
            return super().step(action)

        counts = np.zeros(2)

    envs = make_complete(lambda cfg, seeds: Kept(2, 0), proximo.Config(), [0, 1])
    envs.reset()
    state = envs.state()
    envs.step(torch.zeros(2, 1))
    assert not state["time"].any() and not state["list"][0].any() and envs.state()["time"].all()


def test_a_fault_of_close_is_a_warning_and_hides_no_other(caplog):
    class Closing(Carts):
        def step(self, action):
            raise RuntimeError("the simulator lost contact")

        def close(self):
            raise RuntimeError("boom")

    with caplog.at_level("WARNING", "proximo"), pytest.raises(EnvError, match="lost contact"):
        next(proximo.iterations("ppo_continuous_action", make_envs=lambda cfg, seeds: Closing(len(seeds), 0), num_envs=4,
                                num_steps=32, total_timesteps=256, num_minibatches=2))
    assert "Closing: close() raised RuntimeError: boom" in caplog.text


def test_faults_outside_of_steps_are_named_too():
    class Faulty(Carts):
        keeps_state = property(lambda self: 1 / 0)

        def load(self, state):
            raise KeyError("x")

    envs = make_complete(lambda cfg, seeds: Faulty(2, 0), proximo.Config(), [0, 1])
    with pytest.raises(EnvError, match=r"Faulty.keeps_state\(\) after 0 steps raised ZeroDivisionError"):
        _ = envs.keeps_state
    with pytest.raises(EnvError, match=r"Faulty.load\(\) after 0 steps raised KeyError"):
        envs.load({})
    with pytest.raises(EnvError, match="make_envs raised KeyError: 'num_robots'"):
        make_complete(lambda cfg, seeds: {}["num_robots"], proximo.Config(), [0])
    with pytest.raises(UsageError, match=r"make_envs cannot be called with 2 arguments: .* Pass \(cfg, seeds\)"):
        make_complete(lambda cfg: None, proximo.Config(), [0])


@pytest.mark.parametrize(("attribute", "given", "said"), [
    ("obs_dtype", torch.float32, r"obs_dtype=torch.float32. Use a dtype of numpy, such as np.dtype\(np.float32\)"),
    ("obs_dtype", None, "obs_dtype=None. Use a dtype of numpy"),
    ("obs_shape", None, "obs_shape=None. Use a tuple of whole numbers"),
    ("obs_shape", (4.0,), r"obs_shape=\(4.0,\). Use a tuple of whole numbers"),
    ("action_space", 2, "action_space=2. Use the gymnasium.Space of one environment"),
    ("observation_space", (4,), r"observation_space=\(4,\). Use the gymnasium.Space of one environment, or"),
])
def test_attributes_of_another_kind_are_refused(attribute, given, said):
    """With the attribute and what to give instead, before training."""
    with pytest.raises(UsageError, match=f"make_envs returned GymEnvs with {said}"):
        make_wrong({attribute: given})


def test_all_wrong_attributes_are_named_at_once():
    with pytest.raises(UsageError) as caught:
        make_wrong({"num_envs": 3, "arrays": "cuda", "obs_dtype": "no", "action_space": None, "observation_space": 1})
    names = ("num_envs=3", "arrays='cuda'", "obs_dtype='no'", "action_space=None", "observation_space=1")
    assert [name in line for name, line in zip(names, str(caught.value).splitlines(), strict=True)] == [True] * 5


def make_wrong(attributes):
    """Make two environments with other values of some attributes."""
    def make_envs(cfg, seeds):
        envs = make_gym(cfg, seeds)
        for name, value in attributes.items():
            setattr(envs, name, value)
        return envs

    return make_complete(make_envs, proximo.Config(num_envs=2), [0, 1])


@pytest.mark.parametrize("given", [np.float32, "float32", np.dtype(np.uint8)])
def test_what_numpy_takes_as_a_dtype_is_one(given):
    assert is_numpy_dtype(given)


@pytest.mark.parametrize(("arrays", "said"), [("cuda", "arrays='cuda'. Use one of numpy, torch, jax"),
                                              ("numpy", "Convert it, or set arrays='torch'")])
def test_another_kind_of_arrays_is_refused(arrays, said):
    with pytest.raises(UsageError, match=said):
        train_carts(lambda step: step, arrays=arrays)


def spoiled(x, row, value=float("nan")):
    """Return a copy in which one row is not finite."""
    x = x.clone()
    x[row] = value
    return x


@pytest.mark.parametrize("action", [np.ones((4, 2), np.float32), torch.ones(4, 2)], ids=["numpy", "torch"])
def test_a_group_may_change_the_actions_that_it_is_sent(action):
    class Grouped(Carts):
        groups = 2

        def send(self, group, action):
            action[:] = group

        def receive(self, group):
            raise NotImplementedError

    envs = make_complete(lambda cfg, seeds: Grouped(len(seeds), seeds[0]), None, [1] * 8)
    envs.send(0, action)
    assert (action == 1).all()


def test_a_new_episode_is_announced_by_first():
    """final_obs was normalised, or not, by whether `first` was True, and the state of an LSTM went on."""
    with pytest.raises(UsageError, match="an episode ends in a step with final_obs, and first is False"):
        train_carts(lambda step: step._replace(first=torch.zeros_like(step.first)))


@pytest.mark.parametrize("arrays", ["torch", "numpy"])
@pytest.mark.parametrize(("mask", "wrong"), [([1, 1, 1, 1, 0], None), ([1, 1, 1, 0, 0], 3), ([0, 0, 0, 1, 1], 3)])
def test_a_mask_leaves_a_choice_to_every_component(mask, wrong, arrays):
    """A forbidden action was chosen without a word. A row that the next step only resets needs none."""
    class Masked(Carts):
        action_space = spaces.MultiDiscrete([3, 2])

        def reset(self):
            return self.masked(super().reset())

        def masked(self, step):
            masks = torch.ones(8, 5, dtype=torch.bool)
            masks[3] = torch.tensor(mask, dtype=torch.bool)
            step = step._replace(mask=masks)
            return step if arrays == "torch" else as_numpy(step)

    Masked.arrays = arrays
    envs = make_complete(lambda cfg, seeds: Masked(len(seeds), seeds[0]), None, [1] * 8)
    if wrong is None:
        envs.reset()
        return
    with pytest.raises(EnvError, match=rf"environment {wrong} \(Masked\), step 0: the mask allows no action"):
        envs.reset()


def test_a_row_that_ended_needs_no_choice_where_the_next_step_resets_it():
    mask, over = np.array([[True, False], [False, False]]), np.array([False, True])
    assert first_without_choice(mask, [], over) is None
    assert first_without_choice(mask, [], None) == 1 and first_without_choice(mask, [], ~over) == 1


@pytest.mark.parametrize(("state", "said"), [
    ({"x": torch.zeros(2)}, r"state\(\)\['x'\] as Tensor"), ({"a": [1, {2}]}, r"state\(\)\['a'\]\[1\] as set"),
    ({1: 2}, r"state\(\) with the key 1"), ({"x": np.array([None])}, r"state\(\)\['x'\] as ndarray")])
def test_a_state_that_no_checkpoint_can_keep_is_told_at_the_start(state, said, tmp_path):
    """It was a TypeError of json at the first checkpoint, after the work was done."""
    class Stated(Carts):
        keeps_state = True

        def state(self):
            return state

    with pytest.raises(UsageError, match=rf"Stated\.{said}: a checkpoint keeps dicts"):
        next(iter(proximo.iterations("ppo_continuous_action", make_envs=lambda cfg, seeds: Stated(len(seeds), 1), **TOLD)))


def test_what_a_checkpoint_can_keep():
    state = {"x": np.zeros(2), "n": np.float32(1), "parts": [1, 2.0, "a", None, True, ({"deep": np.arange(3)},)]}
    assert state_problem(state, "state()") == ""


def test_an_environment_may_switch_gradients_on():
    """Learning ended with an error of torch, or with other weights."""
    def weights(on):
        class Learned(Carts):
            def step(self, action):
                step = super().step(action)
                torch.set_grad_enabled(on)
                return step

        *_, it = proximo.iterations("ppo_continuous_action", make_envs=lambda cfg, seeds: Learned(len(seeds), seeds[0]),
                                    **TOLD)
        return it.weights()

    found, expected = weights(True), weights(False)
    assert torch.is_grad_enabled()
    assert all((found[name] == expected[name]).all() for name in expected)


@pytest.mark.parametrize("where", ["reset", "step", "loop"])
def test_environments_and_programs_may_switch_gradients_off(where):
    """Training refused the loss, or ended with an error of torch in the second iteration."""
    def weights(mode):
        class Frozen(Carts):
            def reset(self):
                torch.set_grad_enabled(mode or where != "reset")
                return super().reset()

            def step(self, action):
                torch.set_grad_enabled(mode or where != "step")
                return super().step(action)

        weights = {}
        for it in proximo.iterations("ppo_continuous_action", make_envs=lambda cfg, seeds: Frozen(len(seeds), seeds[0]),
                                     **TOLD):
            weights = it.weights()
            torch.set_grad_enabled(mode or where != "loop")
        return weights

    expected = weights(True)
    try:
        found = weights(False)
    finally:
        torch.set_grad_enabled(True)
    assert all((found[name] == expected[name]).all() for name in expected)


@pytest.mark.parametrize(("dtype", "framework", "number", "stored"), [
    (np.int64, "jax", 2**31, "int32"), (np.int64, "torch", 2**62, None), (np.int64, "jax", -2**31, None),
    (np.int32, "torch", -2**31 - 1, "int32"), (np.uint8, "torch", 256, "uint8"), (np.uint8, "torch", 255, None),
    (np.float32, "jax", 2**40, None)])
def test_whole_numbers_that_would_wrap_are_a_fault(dtype, framework, number, stored):
    """JAX made 0 of 2**32 without a word, and a conversion to obs_dtype 0 of 256."""
    class Numbers(Carts):
        obs_dtype = np.dtype(dtype)

        def reset(self):
            return self.numbered(super().reset())

        def numbered(self, step):
            obs = torch.zeros_like(step.obs, dtype=torch.int64)
            obs[5, 1] = number
            return step._replace(obs=obs, final_obs=None)

    envs = make_complete(lambda cfg, seeds: Numbers(len(seeds), seeds[0]), proximo.Config(framework=framework), [1] * 8)
    if stored is None:
        envs.reset()
        return
    with pytest.raises(EnvError, match=rf"environment 5 \(Numbers\), step 0: observation .* does not fit into {stored}\. Return"):
        envs.reset()


@pytest.mark.parametrize("norm", [False, True])
@pytest.mark.parametrize(("change", "said"), [
    (lambda step: step._replace(obs=spoiled(step.obs, 3)), r"environment 3 \(Changed\), step 1: observation is not"),
    (lambda step: step._replace(reward=spoiled(step.reward, 5, torch.inf)), "environment 5 .* step 1: reward is not"),
    (lambda step: step._replace(final_obs=spoiled(step.obs, 2)), r"environment 2 .* step \d+: final_obs is not finite"),
])
def test_a_robot_with_nan_is_named(change, said, norm):
    """Normalisation would spread it to the observations of all robots."""
    with pytest.raises(EnvError, match=said):
        train_carts(change, norm_obs=norm, norm_reward=norm)


def test_what_is_not_read_may_be_nan():
    """The reward of a filler row, and the last observation of an episode that goes on."""
    def change(step):
        going = ~step.truncated
        final, valid = torch.where(going[:, None], torch.nan, step.final_obs), going.clone()
        return step._replace(final_obs=final, valid=valid, truncated=step.truncated & valid,
                             reward=torch.where(valid, step.reward, torch.nan))

    train_carts(change)


def test_tensors_are_normalised_in_training():
    """The statistics of a run are those of all observations that the carts returned."""
    seen = []

    def keep(step):
        seen.append(step.obs.clone())
        return step

    class Kept(Carts):
        def reset(self):
            return keep(super().reset())

        def step(self, action):
            return keep(super().step(action))

    for it in proximo.iterations("ppo_continuous_action", make_envs=lambda cfg, seeds: Kept(len(seeds), seeds[0]),
                                 **TOLD | {"norm_obs": True, "norm_reward": True}):
        rows = torch.cat(seen).double().numpy()
        assert isinstance(it.statistics.obs.mean, np.ndarray)
        np.testing.assert_allclose(it.statistics.obs.mean, rows.mean(0), rtol=1e-6, atol=1e-6)
        np.testing.assert_allclose(it.statistics.obs.var, rows.var(0), rtol=1e-3)


def test_an_exception_of_the_environments_names_them_and_the_step():
    calls = []

    def fail(step):
        calls.append(step)
        if len(calls) == 4:
            raise KeyError("speed")
        return step

    with pytest.raises(EnvError, match=r"^Changed\.step\(\) after 3 steps raised KeyError: 'speed' \(.*test_suite\.py, line"):
        train_carts(fail)


def test_both_ends_at_once_are_refused():
    """The value of what follows would be 0 in one place and V(final_obs) in another."""
    def end(step):
        return step._replace(terminated=torch.ones(8, dtype=torch.bool), truncated=torch.ones(8, dtype=torch.bool))

    with pytest.raises(UsageError, match="terminated and truncated in the same step"):
        train_carts(end)


def test_tensors_are_refused_by_jax():
    pytest.importorskip("jax")
    with pytest.raises(UsageError, match='framework="jax" needs environments that return numpy or JAX arrays'):
        for _ in proximo.iterations("ppo_continuous_action", make_envs=make_carts, framework="jax",
                                    **TOLD):
            pass


def test_another_problem_does_not_report_normalisation_that_is_off(tmp_path):
    """The variant normalises by default; all problems are collected with the settings of the run."""
    class Packed(Carts):
        observation_space = spaces.Dict(image=spaces.Box(0, 255, (3, 8, 8), np.uint8))

    with pytest.raises(UsageError) as caught:
        proximo.train("ppo_continuous_action", make_envs=lambda cfg, seeds: Packed(len(seeds), seeds[0]),
                      run_dir=tmp_path / "run", gamma=3.0, **TOLD)
    assert str(caught.value).startswith("gamma=3.0 ") and len(str(caught.value).splitlines()) == 1


def test_a_problem_of_the_environments_is_told_once(tmp_path):
    """It names the number of rows, so that a second try with fewer would be another sentence."""
    tried = []

    def make_envs(cfg, seeds):
        tried.append(len(seeds))
        raise UsageError(f"no map for {len(seeds)} rows")

    for framework in ("torch", "jax"):
        with pytest.raises(UsageError) as caught:
            proximo.train("ppo", make_envs=make_envs, run_dir=tmp_path / "run", num_envs=4, framework=framework)
        assert str(caught.value) == "no map for 4 rows" and tried.pop() == 4 and not tried


@pytest.mark.parametrize("wrong, said", [
    ("observe", r"ControlPure\.reset\(\) returned obs of shape \(4, 2\) .* has to be \(4, 1\)"),
    ("reward", r"ControlPure\.step\(\) returned reward of shape \(4, 1\) .* has to be \(4,\)"),
    ("raise", r"ControlPure\.step\(\) raised KeyError: 'speed' \(.*test_suite\.py, line"), ("", "")])
def test_environments_in_jax_are_checked_before_they_are_compiled(wrong, said):
    """Shapes that are wrong there end in an error of a matrix product, or are broadcast."""
    jax_control = pytest.importorskip("proximo.envs.jax_control")
    from proximo.envs.pure import PureVec

    def advance(state, action):
        if wrong == "raise":
            raise KeyError("speed")
        reward = state[0] + action
        return state, reward[:, None] if wrong == "reward" else reward, state[0] > 1

    task = jax_control.Task(low=(0.0,), high=(1.0,), advance=advance, obs_size=1, action_space=spaces.Discrete(2), limit=9,
                            observe=lambda state: 2 * state if wrong == "observe" else state)

    def make_envs(cfg, seeds):
        return PureVec(jax_control.ControlPure(task, len(seeds)), seeds[0])

    if not wrong:
        assert make_complete(make_envs, None, [1, 2, 3, 4]).num_envs == 4
        return
    with pytest.raises(EnvError, match=said):
        make_complete(make_envs, None, [1, 2, 3, 4])


def jax_line(**parts):
    """Environments in JAX whose number moves by the action."""
    jax_control = pytest.importorskip("proximo.envs.jax_control")
    from proximo.envs.pure import PureVec

    advance = parts.pop("advance", lambda state, action: ((state[0] + 0.1 * action,), state[0], state[0] > 2))
    task = jax_control.Task(low=(0.0,), high=(1.0,), advance=advance, obs_size=1, action_space=spaces.Discrete(2), limit=9,
                            observe=lambda state: state)

    def make_envs(cfg, seeds):
        envs = PureVec(jax_control.ControlPure(task, len(seeds)), seeds[0])
        for name, value in parts.items():
            setattr(envs, name, value)
        return envs

    return make_envs


def test_environments_in_jax_are_played_by_torch():
    """docs/batched-environments.md: their step gets a tensor."""
    *_, it = proximo.iterations("ppo", make_envs=jax_line(), env_id="Line-v0", **TOLD)
    assert it.iteration == 2


def test_a_state_in_jax_that_changes_its_dtype_is_told():
    """It was a TypeError of lax.scan."""
    envs = jax_line()(None, [1, 2])
    step = envs.pure.step

    def drifting(state, action):
        after, result = step(state, action)
        return {"inner": after}, result

    envs.pure.step = drifting
    with pytest.raises(EnvError, match=r"ControlPure\.step\(\) returned a state of another structure, shape or dtype"):
        make_complete(lambda cfg, seeds: envs, None, [1, 2])


def test_a_state_in_jax_is_compared_leaf_by_leaf():
    """Long states were printed, and cut before the place where they differ."""
    jax = pytest.importorskip("jax")
    zeros = jax.numpy.zeros
    state = {"position": zeros((8, 3)), "inner": (zeros(8), zeros(8, int))}
    before, whole, more, listed = (jax.eval_shape(lambda made=made: made) for made in (
        state, state | {"inner": (zeros(8, int), zeros(8, int))}, state | {"speed": zeros(8)},
        state | {"inner": list(state["inner"])}))
    assert state_difference(before, before) == ""
    assert state_difference(before, whole) == "state['inner'][0] is int32 (8,) instead of float32 (8,)"
    assert state_difference(before, more) == "state['speed'] is float32 (8,) instead of missing"
    assert "instead of" in state_difference(before, listed)


@pytest.mark.parametrize(("change", "players", "broken"), [
    ({}, (), False),
    ({"terminated": [True, False], "truncated": [True, False], "first": [True, False]}, (), True),
    ({"terminated": [True, False], "truncated": [True, False], "first": [True, False], "valid": [False, True]}, (), True),
    ({"terminated": [True, False]}, (), True), ({"terminated": [True, False]}, ("a", "b"), False),
    ({"terminated": [True, False], "valid": [False, True]}, (), False),
    ({"terminated": [True, False], "final_obs": None, "mask": [[False, False], [True, True]]}, (), False),
    ({"final_obs": None, "mask": [[False, False], [True, True]]}, (), True),
    ({"final_obs": None, "first": [True, False]}, (), True),
    ({"final_obs": None, "first": [True, False], "valid": [False, True]}, (), False),
    ({"terminated": [True, False], "first": [True, False], "mask": [[False, False], [True, True]]}, (), True),
])
def test_which_steps_in_jax_break_a_rule(change, players, broken):
    """An end of two kinds, one without what follows it, and masks without a choice; fillers and the end of a game may."""
    jnp = pytest.importorskip("jax").numpy
    no, yes, zero = jnp.zeros(2, bool), jnp.ones(2, bool), jnp.zeros(2)
    step = Step(obs=zero, first=no, mask=jnp.ones((2, 2), bool), reward=zero, terminated=no, truncated=no, final_obs=zero, valid=yes,
                episode=None, metrics={})
    step = step._replace(**{name: None if x is None else jnp.array(x) for name, x in change.items()})
    pure = SimpleNamespace(players=players, step=lambda state, action: (state, step))
    _, found = CheckedPure(pure, np.zeros(0, int)).step(None, None)
    assert bool(jnp.isnan(found.reward).all()) == bool(jnp.isnan(found.reward).any()) == broken


@pytest.mark.parametrize(("how", "finite"), [("filler", True), ("silent", False), ("always", False)])
def test_a_reset_in_jax_that_is_not_announced_breaks_a_rule(how, finite):
    """Episodes of three steps. The step after an end has to be a filler, and no other step is one."""
    jnp = pytest.importorskip("jax").numpy

    class Counting:
        players = ()

        def reset(self, key):
            return jnp.zeros(2, int), self.made(jnp.zeros(2, int), True)

        def step(self, state, action):
            time = (state + 1) % 4 if how == "filler" else (state + 1) % 3
            return time, self.made(time, False)

        def made(self, time, begins):
            filler = (time == 0) & ((how == "filler") | (how == "always")) & (not begins)
            first = jnp.ones(2, bool) if begins else filler
            return Step(obs=time, first=first, mask=None, reward=jnp.zeros(2), terminated=(time == 3 - (how != "filler")) & (not begins),
                        truncated=jnp.zeros(2, bool), final_obs=None, valid=~filler, episode=None, metrics={})

    pure = CheckedPure(Counting(), np.zeros(0, int))
    state, _ = pure.reset(None)
    rewards = []
    for _ in range(9):
        state, step = pure.step(state, None)
        rewards.append(step.reward)
    if how == "always":  # the filler of another row
        state = state._replace(ended=jnp.array([True, False]))
        rewards.append(pure.step(state, None)[1].reward)
    assert bool(np.isfinite(np.array(rewards)).all()) is finite


def test_a_mask_without_a_choice_at_the_first_reset_in_jax_is_a_fault():
    from proximo.envs.pure import PureVec

    envs = jax_line()(None, [1, 2])
    reset, step = envs.pure.reset, envs.pure.step
    envs.pure.reset = lambda key: (reset(key)[0], reset(key)[1]._replace(mask=np.zeros((2, 2), bool)))
    envs.pure.step = lambda state, action: (step(state, action)[0], step(state, action)[1]._replace(mask=np.ones((2, 2), bool)))
    with pytest.raises(EnvError, match=r"^environment 0 \(ControlPure\), step 0: the mask allows no action"):
        make_complete(lambda cfg, seeds: PureVec(envs.pure, 1), None, [1, 2])


def test_a_condition_in_a_step_in_jax_is_named_with_its_line():
    """It was the text of a TracerBoolConversionError, with line breaks as \\n."""
    def advance(state, action):
        return (state if state[0].max() > 1 else (0 * state[0],)), state[0], state[0] > 2

    with pytest.raises(EnvError, match=r"test_suite\.py, line \d+ needs the value of a number of JAX, .* jnp\.where"):
        make_complete(jax_line(advance=advance), None, [1, 2])


@pytest.mark.parametrize("change", [
    lambda step: {"truncated": step.first, "terminated": step.first},
    lambda step: {"final_obs": None},
    lambda step: {"first": step.first & False},
    lambda step: {"mask": step.first[:, None] & np.array([False, False])}, None])
def test_a_rule_that_a_step_in_jax_breaks_ends_training(change):
    """Compiled code raises nothing: the same weights were trained as with other ends, or by actions that are forbidden."""
    def make_envs(cfg, seeds):
        envs = jax_line()(cfg, seeds)
        reset, step = envs.pure.reset, envs.pure.step

        def broken(state, action):
            after, result = step(state, action)
            mask = ~result.first[:, None] | np.array([True, False])
            return after, result._replace(**{"mask": mask} | (change(result) if change else {}))

        def masked(key):
            state, result = reset(key)
            return state, result._replace(mask=result.first[:, None] | np.array([True, True]))

        envs.pure.reset, envs.pure.step = masked, broken
        return envs

    training = proximo.iterations("ppo", make_envs=make_envs, env_id="Line-v0", framework="jax", **TOLD)
    if change is None:
        assert [it.iteration for it in training] == [1, 2]
        return
    masks = "mask" in change(jax_line()(None, [1]).reset())
    with pytest.raises(EnvError if masks else NumbersError, match="action_mask allows no action at the end of iteration 1" if masks else
                       "not finite in iteration 1 .*terminated and truncated both true"):
        list(training)


@pytest.mark.parametrize("play", ["Inside", None, "host"])
def test_another_way_to_play_is_refused(play):
    if play == "host":
        assert make_complete(jax_line(play=play), None, [1, 2]).play == "host"
        return
    with pytest.raises(UsageError, match=rf"PureVec with play={play!r}\. Use one of host, pool, inside\."):
        make_complete(jax_line(play=play), None, [1, 2])


def test_environments_without_functions_for_jax_are_not_played_inside():
    class Inside(Carts):
        play = "inside"

    with pytest.raises(UsageError, match="Inside with play='inside' and without `pure`"):
        make_complete(lambda cfg, seeds: Inside(len(seeds), 0), None, [1, 2])


def test_numbers_are_not_cut_off_to_integers():
    class Whole(Carts):
        obs_dtype = np.dtype(np.uint8)

    with pytest.raises(UsageError, match="obs_dtype=uint8 would cut off what follows the point. Set obs_dtype to a float"):
        make_complete(lambda cfg, seeds: Whole(len(seeds), 0), None, [1, 2]).reset()


PARTS = {"number": (spaces.Box(-1, 1, (1,)), (8,)), "vector": (spaces.Box(-1, 1, (2, 2)), (8, 2, 2)),
         "parts": (spaces.Dict(choice=spaces.Discrete(3), force=spaces.Box(-1, 1, (2,))), (8, 3))}


@pytest.mark.parametrize("case", PARTS)
def test_actions_of_a_task_in_jax(case, tmp_path):
    """Training gives a task the shapes of the documentation: what is checked before is what is compiled."""
    jax_control = pytest.importorskip("proximo.envs.jax_control")
    from proximo.envs.pure import PureVec

    (space, shape), seen = PARTS[case], set()

    def advance(state, action):
        seen.add(action.shape)
        if case == "parts":
            assert action.dtype == "float32"
        return state, action.reshape(8, -1)[:, 0], state[0] > 1

    task = jax_control.Task(low=(0.0,), high=(1.0,), advance=advance, obs_size=1, action_space=space, limit=9,
                            observe=lambda state: state)
    run = proximo.train("ppo_continuous_action", framework="jax", env_id="Task-v0", num_envs=8, num_steps=4, num_minibatches=2,
                        total_timesteps=64, run_dir=tmp_path / "run",
                        make_envs=lambda cfg, seeds: PureVec(jax_control.ControlPure(task, len(seeds)), seeds[0]))
    assert seen == {shape}
    assert space.contains(proximo.load(run).act([0.5]))


def test_a_resume_with_arrays_of_jax_is_exact(tmp_path):
    """The statistics of normalisation came back in float64, and the weights differed in their last bits."""
    pytest.importorskip("jax")
    import jax.numpy as jnp

    class Kept(Carts):
        arrays, keeps_state = "jax", True

        def made(self, *given):
            step = super().made(*given)
            return tree_map_only(torch.Tensor, lambda x: jnp.asarray(x.numpy()), step)

        def step(self, action):
            return super().step(torch.as_tensor(np.array(action)))

        def state(self):
            return {"x": self.x.numpy(), "time": self.time.numpy(), "ret": self.ret.numpy(),
                    "draws": self.generator.get_state().numpy()}

        def load(self, state):
            self.x, self.time, self.ret = (torch.tensor(state[name]) for name in ("x", "time", "ret"))
            self.generator.set_state(torch.tensor(state["draws"]))

    def stop(it):
        if it.iteration == 2:
            raise proximo.StopTraining("as wanted")

    own = {"make_envs": lambda cfg, seeds: Kept(len(seeds), seeds[0])}
    values = {"config": "ppo_continuous_action", "framework": "jax", "env_id": "Carts", "num_envs": 4, "num_steps": 16,
              "num_minibatches": 2, "total_timesteps": 256, "logger": "none"}
    whole = proximo.train(run_dir=tmp_path / "whole", **values, **own)
    halves = proximo.train(run_dir=tmp_path / "halves", callbacks=[stop], **values, **own)
    assert proximo.resume(halves, **own) == halves
    assert same_weights(whole, halves)
