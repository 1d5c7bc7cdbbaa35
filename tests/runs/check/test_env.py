"""proximo.check_env against probes with one known fault each."""

from decimal import Decimal
from types import SimpleNamespace

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

import proximo
from proximo.envs.arrays.masks import NO_CHOICE
from proximo.envs.gym_loop import GymEnvs
from proximo.errors import EnvError, UsageError
from proximo.runs.check import rows as check_rows
from proximo.runs.check.env import check_env
from tests.support.probes import Probe


def told(env_id):
    """(sentences that say something is wrong, those that say all is well)"""
    findings = check_env(env_id)
    return ([finding.what for finding in findings if finding.ok is False],
            " ".join(finding.what for finding in findings if finding.ok))


def test_a_good_environment_has_no_fault():
    wrong, right = told("CartPole-v1")
    assert not wrong and "same seed gives the same episode" in right and "state can be saved" in right
    assert "different seeds give different episodes" in right


class NewDraws(Probe):
    """Draws the observation of a reset; a reset without a seed makes a new generator, as in panda-gym."""

    length = 5

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        self.begun = np.random.default_rng(seed).random(self.observation_space.shape)
        return self.begun.astype(np.float32), {}


class SeedEveryReset(gym.Wrapper):
    """The wrapper of docs/other-environments.md."""

    def reset(self, *, seed=None, options=None):
        if seed is not None:
            self.draws = np.random.default_rng(seed)
        return self.env.reset(seed=int(self.draws.integers(2**31)), options=options)


def test_a_reset_without_a_seed_that_draws_anew_is_told_from_a_seed_that_is_ignored():
    """Only the first episode is that of the seed. The wrapper that the page shows repairs it."""
    class Ignores(NewDraws):
        def reset(self, seed=None, options=None):
            return super().reset()

    assert told(NewDraws)[0] == ["the same seed gives the same first episode, and different ones after it"]
    assert told(Ignores)[0] == ["the same seed gives different episodes"]
    assert told(lambda: SeedEveryReset(NewDraws()))[0] == []


def test_masks_are_obeyed():
    """The probe raises where a forbidden action is taken."""
    wrong, right = told("tests.support.probes:Masked-v0")
    assert not wrong and "action_mask" in right


class ByMethod(Probe):
    """Its method says that only action 1 is allowed; it raises for another one."""

    def action_masks(self):
        return np.array([False, True])

    def step(self, action):
        assert action == 1
        return super().step(action)


def test_the_method_action_masks_is_obeyed():
    """As in training, also with a Dict observation that has no mask."""
    class InDict(ByMethod):
        observation_space = spaces.Dict({"seen": ByMethod.observation_space})

        def observe(self):
            return {"seen": super().observe()}

    for env in (ByMethod, InDict):
        findings = check_env(env)
        assert all(finding.ok for finding in findings if finding.what), findings
        assert any("with an action_mask" in finding.what for finding in findings)


@pytest.mark.parametrize("length", [4, 900])
def test_a_mask_that_reset_does_not_return_is_told(length):
    """Training would end there."""
    class Late(Probe):
        def step(self, action):
            *answer, info = super().step(action)
            return *answer, {"action_mask": np.array([1, 0])} if self.played > length // 2 else info

    Late.length = length
    wrong = [finding for finding in check_env(Late) if finding.ok is False]
    assert len(wrong) == 1 and wrong[0].ends and "Late, step" in wrong[0].what
    assert "the first reset() returned none. Return it from every reset() and step()" in wrong[0].what


@pytest.mark.parametrize(("name", "words"), [
    ("Endless", "no episode ended"), ("Spoken", "action space Text"), ("Faulty_raises", "the motor is on fire"),
    ("Faulty_nan_obs", "not finite"), ("Faulty_wrong_shape", "shape (1,)"),
])
def test_faults_are_told(name, words):
    wrong, _ = told(f"tests.support.probes:{name}-v0")
    assert len(wrong) == 1 and words in wrong[0]


def test_another_dtype_is_not_called_outside_the_bounds():
    """It is converted, with a message; only numbers beyond the bounds are outside."""
    class Double(Probe):
        scale = 1

        def observe(self):
            return np.float64(self.scale * super().observe())

    class Beyond(Double):
        scale = 3

    assert not [finding.what for finding in check_env(Double) if "outside" in finding.what]
    assert len([finding.what for finding in check_env(Beyond) if "outside the bounds" in finding.what]) == 1


def test_a_step_without_five_values_is_told_as_in_training():
    class Old(Probe):
        def step(self, action):
            observation, reward, terminated, _, info = super().step(action)
            return observation, reward, terminated, info

    (found,) = (finding for finding in check_env(Old) if not finding.ok)
    assert "Old, step 1: step returned a tuple of 4; it must return (observation, reward, terminated" in found.what
    assert "(The interface of gym) has a wrapper" in found.what


class FailsInThird(Probe):
    """Raises in the third step."""

    def step(self, action):
        self.calls = getattr(self, "calls", 0) + 1
        if self.calls == 3:
            raise ValueError("no")
        return super().step(action)


def test_steps_are_counted_as_training_counts_them(tmp_path):
    """From 1."""
    assert ", step 3: ValueError: no" in str(check_env(FailsInThird))
    with pytest.raises(EnvError, match="step 3: raised ValueError: no"):
        proximo.train(env=FailsInThird, total_timesteps=512, run_dir=tmp_path / "run")


@pytest.mark.parametrize(("answer", "words"), [
    (lambda obs: (obs, np.nan), "reward is nan"), (lambda obs: (obs * np.nan, 1.0), "observation is not finite")])
def test_a_number_that_is_not_finite_late_is_a_fault(answer, words):
    """In step 700, where training would end; the steps that are compared for equal seeds are fewer."""
    class Late(Probe):
        calls = 0

        def step(self, action):
            self.calls += 1
            observation, reward, *rest = super().step(action)
            return *(answer(observation) if self.calls == 700 else (observation, reward)), *rest

    found = [finding for finding in check_env(Late) if finding.ok is False]
    assert len(found) == 1 and found[0].ends and f"step 700: {words}" in found[0].what


def test_slow_environments_with_long_episodes_have_no_fault(monkeypatch):
    """Episodes of 1000 steps at 10 steps per second of a simulated clock: a minute is not enough for the end of one."""
    now = [0.0]
    monkeypatch.setattr("proximo.runs.check.env.time", SimpleNamespace(perf_counter=lambda: now[0]))

    class Slow(Probe):
        length = 1000

        def step(self, action):
            now[0] += 0.1
            return super().step(action)

    findings = check_env(Slow)
    assert all(finding.ok is not False for finding in findings), findings
    (found,) = (finding for finding in findings if "no episode ended" in finding.what)
    assert found.what == f"no episode ended in {1 + round(60 / 0.1)} steps of random actions" and "slow" in found.advice


def test_what_is_compiled_in_the_first_reset_and_step_is_no_time_of_play(monkeypatch):
    """By a simulated clock: two minutes for each of both, and 0.02 seconds for all others."""
    now = [0.0]
    monkeypatch.setattr("proximo.runs.check.env.time", SimpleNamespace(perf_counter=lambda: now[0]))

    class Compiles(Probe):
        slow = {"reset", "step"}

        def wait(self, name):
            now[0] += 120 if name in Compiles.slow else 0.02
            Compiles.slow.discard(name)

        def reset(self, *, seed=None, options=None):
            self.wait("reset")
            return super().reset(seed=seed, options=options)

        def step(self, action):
            self.wait("step")
            return super().step(action)

    told = [finding.what for finding in check_env(Compiles)]
    speed, = (float(what.split()[0]) for what in told if what.endswith("steps per second in one process"))
    assert 20 <= speed <= 50, told
    assert any("episodes ended within the steps that were played" in what for what in told), told


def test_less_than_one_step_per_second_is_no_zero(monkeypatch):
    """By a simulated clock: 2.5 seconds for each step."""
    now = [0.0]
    monkeypatch.setattr("proximo.runs.check.env.time", SimpleNamespace(perf_counter=lambda: now[0]))

    class Slowest(Probe):
        def step(self, action):
            now[0] += 2.5
            return super().step(action)

    assert "0.4 steps per second in one process" in [finding.what for finding in check_env(Slowest)]


def test_an_episode_of_a_year_of_hours_ends():
    """8,760 steps, far more than are played where episodes end sooner."""
    class Year(Probe):
        length = 8760

    findings = check_env(Year)
    assert "1 episodes ended within the steps that were played" in [one.what for one in findings if one.ok], findings


class Counted(Probe):
    """Counts what is made and closed; the reset of instance `fails` (from 1) raises."""

    made = closed = fails = 0

    def __init__(self):
        Counted.made += 1
        self.number = Counted.made

    def reset(self, **how):
        if self.number == Counted.fails:
            raise OSError("no licence")
        return super().reset(**how)

    def close(self):
        Counted.closed += 1


@pytest.mark.parametrize("fails", [0, 1, 2, 3, 4])
def test_every_instance_is_closed(fails, monkeypatch):
    """Four are made: one to play in, and three whose episodes are compared."""
    monkeypatch.setattr(Counted, "made", 0)
    monkeypatch.setattr(Counted, "closed", 0)
    monkeypatch.setattr(Counted, "fails", fails)
    findings = check_env(Counted)
    assert any("no licence" in finding.what for finding in findings) == bool(fails)
    assert Counted.closed == Counted.made >= (1 if fails == 1 else 4)


def test_an_environment_without_spaces_is_closed(monkeypatch):
    class NoSpaces(Counted):
        observation_space = None

    monkeypatch.setattr(Counted, "made", 0)
    monkeypatch.setattr(Counted, "closed", 0)
    with pytest.raises(UsageError, match="no observation_space"):
        check_env(NoSpaces)
    assert Counted.closed == Counted.made == 1


def test_every_reset_must_return_a_dict_too():
    """The first reset does; the one after the first episode returns the observation only."""
    class Short(Probe):
        def reset(self, *, seed=None, options=None):
            answer = super().reset(seed=seed)
            return answer if seed is not None else answer[0]

    (wrong,) = told(Short)[0]
    assert wrong.startswith("Short: reset returned a ndarray; it must return (observation, info), and info must be a dict; ")
    assert "The interface of gym" in wrong


def returning(**parts):
    """An environment whose answers have these parts: reward, terminated, truncated, info."""
    class Returning(Probe):
        def step(self, action):
            obs, reward, terminated, truncated, info = super().step(action)
            return (obs, parts.get("reward", reward), parts.get("flag", bool)(terminated),
                    parts.get("flag", bool)(truncated), parts.get("info", info))

    return Returning


def trains(env):
    """Whether training takes an environment."""
    try:
        for _ in proximo.iterations(env=env, num_envs=2, num_steps=8, num_minibatches=2, total_timesteps=32):
            pass
    except EnvError:
        return False
    return True


@pytest.mark.parametrize(("parts", "words"), [
    ({"info": None}, ""), ({"reward": np.float16(1)}, ""), ({"reward": np.uint8(1)}, ""),
    ({"reward": Decimal("0.1")}, "rewards have the type Decimal"), ({"reward": 1j}, "rewards have the type complex"),
    ({"reward": np.ones(1)}, "rewards have the type ndarray"), ({"flag": int}, "truncated have the type int"),
    ({"flag": lambda flag: np.array([flag])}, "truncated have the type ndarray"),
    ({"reward": np.ones(3)}, "rewards have the type ndarray"), ({"reward": None}, "rewards have the type NoneType"),
    ({"flag": lambda flag: flag or None}, "truncated have the type NoneType"),
    ({"flag": str}, "truncated have the type str")])
def test_a_fault_is_what_training_refuses(parts, words):
    """What training converts is a remark."""
    env = returning(**parts)
    findings = check_env(env)
    assert all(finding.ok is not False for finding in findings) == trains(env), findings
    remarks = [finding.what for finding in findings if not finding.ok]
    assert np.size(parts.get("reward")) == 1 or "or a weighted sum of several objectives" in str(findings)
    assert words in " ".join(remarks) and bool(remarks) == bool(words), remarks


def test_the_bounds_of_actions_are_played():
    """Actions of an untrained policy are at the bounds of a Box in many steps, random ones never."""
    class Weights(Probe):
        action_space = spaces.Box(0, 1, (3,), np.float32)

        def step(self, action):
            with np.errstate(invalid="ignore"):
                self.weights = action / action.sum()
            return super().step(0)[0], float(self.weights[0]), self.played > 5, False, {}

    (wrong,) = told(Weights)[0]
    assert "reward is nan" in wrong and not trains(Weights)


def test_an_environment_that_takes_no_options_is_right():
    """Training passes none."""
    class Old(Probe):
        def reset(self, seed=None):
            return super().reset(seed=seed)

    assert not told(Old)[0] and trains(Old)


def test_masks_that_allow_no_action_are_named():
    for mask in (np.zeros(2), [0, 0]):
        class Stuck(Probe):
            def reset(self, mask=mask, **how):
                return super().reset(**how)[0], {"action_mask": mask}

        assert told(Stuck)[0] == [f"Stuck, step 0: {NO_CHOICE}"] and not trains(Stuck)


def test_actions_without_numbers_are_not_supported():
    class Motionless(Probe):
        action_space = spaces.Box(-1, 1, (0,))

    (wrong,) = told(Motionless)[0]
    assert "for which there is no policy" in wrong


def test_a_box_of_whole_numbers_is_told_its_other_form_only():
    """It was also advised to rescale it, which does not help. The other form has the same choices."""
    class Whole(Probe):
        action_space = spaces.Box(np.array([3, -1]), np.array([5, 0]), (2,), np.int64)

    (space, finding) = check_env(Whole)
    assert "observation space" in space.what and finding.ok is False and "Rescale" not in finding.advice
    assert finding.what.endswith("A Box of whole numbers is MultiDiscrete(high - low + 1, start=low).")
    low, high = Whole.action_space.low, Whole.action_space.high
    other = spaces.MultiDiscrete(high - low + 1, start=low)
    assert all(other.contains(x) is Whole.action_space.contains(x) for x in np.argwhere(np.ones((8, 8), bool)) - 2)


def test_spaces_are_named_in_one_line():
    """A Box with 100 bounds of its own would take twenty lines."""
    class Wide(Probe):
        observation_space = spaces.Box(np.linspace(-2, -1, 100, dtype=np.float32), np.inf, (100,))

        def observe(self):
            return np.zeros(100, np.float32)

    (line,) = [finding.what for finding in check_env(Wide) if "observation space" in finding.what]
    assert line.startswith("the observation space Box([-2. ") and line.endswith("(100,), float32) is supported")
    assert "\n" not in line and len(line) < 300


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


@pytest.mark.parametrize(("given", "values", "said"), [
    ("CartPole-v1", {"env_id": "Pendulum-v1"}, "env='CartPole-v1' and env_id='Pendulum-v1' were both given."),
    (Probe, {"env_file": "mine.py"}, "env and env_file were both given."),
    ("CartPole-v1", {"env_kwargs": 3}, "env_kwargs=3 is not"), (Probe, {"env_kwargs": ["size"]}, "'size' is not key=value"),
    (None, {"env_id": 3}, "env_id=3 is not"), ("CartPole-v1", {"env_wrappers": "a:B"}, "env_wrappers")])
def test_arguments_that_training_refuses_are_refused_with_its_words(given, values, said, tmp_path):
    """The second environment was left out, or the message was one of Python."""
    with pytest.raises(UsageError) as error:
        proximo.check_env(given, **values)
    assert said in str(error.value)
    with pytest.raises(UsageError) as error:
        proximo.train(env=given, run_dir=tmp_path / "run", **values)
    assert said in str(error.value)


class Unseeded(Probe):
    """Its state cannot be saved, and its first observation does not depend on the seed."""

    def __init__(self):
        self.game = object()

    def observe(self):
        return np.float32([np.random.default_rng().random(), 0])


def test_a_resume_is_called_exact_only_where_seeds_determine_episodes():
    """As NLE and crafter do: a game outside Python that reset(seed=...) does not seed."""
    advice = {kind: check_env(kind)[-1].advice for kind in (Unseeded, type("Seeded", (Unseeded,), {"observe": Probe.observe}))}
    assert "a resumed run differs" in advice.pop(Unseeded) and "exact all the same" in next(iter(advice.values()))


def test_slow_environments_are_compared_in_fewer_steps(monkeypatch):
    """Against the number of steps that the clock allows, which the other two environments then make too."""
    played = []

    class Slow(Probe):
        def step(self, action):
            played[-1] += 1
            return super().step(action)

        def reset(self, *, seed=None, options=None):
            if seed is not None:
                played.append(0)
            return super().reset(seed=seed, options=options)

    clock = iter(range(10**6))
    monkeypatch.setattr(check_rows.time, "perf_counter", lambda: next(clock))
    envs = [GymEnvs(Slow, [1], "Slow-v0") for _ in range(3)]
    findings = list(check_rows.row_findings(*envs))
    assert [n for n in played if n][:3] == [int(check_rows.COMPARED_SECONDS) + 1] * 3 and "the same seed gives the same episode" in findings[1].what
