"""Probe environments: each has one property that a learner, or the code around environments, must handle.

They are registered on import, so that `tests.support.probes:Constant-v0` is an id everywhere. Episodes have a fixed length
unless the docstring says something else.
"""

import ctypes
import os
import signal
import time

import gymnasium
import numpy as np
from gymnasium import spaces

UNIT = spaces.Box(-1, 1, (2,), np.float32)


class Probe(gymnasium.Env):
    """Observations are 2 floats, there are 2 actions, it terminates after `length` steps; the reward is 1 per step."""

    length = 4
    observation_space = UNIT
    action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.played, self.cue = 0, float(self.np_random.integers(2)) * 2 - 1
        return self.observe(), {}

    def step(self, action):
        reward = self.reward(action)
        self.played += 1
        return self.observe(), reward, self.played >= self.length, False, {}

    def observe(self):
        return np.array([self.cue, self.played / self.length], np.float32)

    def reward(self, action):
        return 1.0


class Constant(Probe):
    """One step with reward 1 and nothing to observe: the value must become 1."""

    length = 1

    def observe(self):
        return np.zeros(2, np.float32)


class Observed(Probe):
    """One step whose reward is the cue in the observation: the value must follow the observation."""

    length = 1

    def reward(self, action):
        return self.cue


class Delayed(Probe):
    """Two steps with reward 1 at the second: the value of the first observation must become gamma."""

    length = 2

    def observe(self):
        return np.array([0, self.played], np.float32)

    def reward(self, action):
        return float(self.played == 1)


class Seconds(Probe):
    """Whole numbers of 64 bits, of which the cue is in the upper 32."""

    observation_space = spaces.Box(-2**40, 2**40, (2,), np.int64)

    def observe(self):
        return np.array([int(self.cue) * 2**40, self.played])


class Acting(Probe):
    """One step with reward 1 for action 1 if the cue is positive, or action 0 if it is negative; otherwise -1."""

    length = 1

    def reward(self, action):
        return 1.0 if bool(action) == (self.cue > 0) else -1.0


class Looking(Acting):
    """Acting whose cue is the brightness of an image only, with a second part of the action that must have its sign."""

    observation_space = spaces.Dict({"camera": spaces.Box(0, 255, (8, 8, 1), np.uint8), "blank": UNIT})
    action_space = spaces.Tuple((spaces.Discrete(2), spaces.Box(-1, 1, (1,), np.float32)))

    def observe(self):
        return {"camera": np.full((8, 8, 1), 255 * (self.cue > 0), np.uint8), "blank": np.zeros(2, np.float32)}

    def reward(self, action):
        return (super().reward(action[0]) + float(action[1][0]) * self.cue) / 2


class Bound(Probe):
    """One step with a continuous action in [1, 3]; the reward is 1 on the bound that the cue names, 0 on the other one."""

    length = 1
    action_space = spaces.Box(1, 3, (1,), np.float32)

    def reward(self, action):
        if not 1 <= action[0] <= 3:
            raise ValueError(f"action {action[0]} is outside the bounds")
        return float(action[0] - 1) / 2 if self.cue > 0 else float(3 - action[0]) / 2


class Truncated(Probe):
    """Reward 1 for ever, truncated after 5 steps, nothing to observe: the value must become 1 / (1 - gamma)."""

    def observe(self):
        return np.zeros(2, np.float32)

    def step(self, action):
        self.played += 1
        return self.observe(), 1.0, False, self.played >= 5, {}


class Memory(Probe):
    """The cue is observed at the first step only; the reward is 1 if the last action (of 4) matches it, otherwise -1."""

    def observe(self):
        return np.array([self.cue if self.played == 0 else 0, self.played == 3], np.float32)

    def reward(self, action):
        return 0.0 if self.played < 3 else 1.0 if bool(action) == (self.cue > 0) else -1.0


class Masked(Probe):
    """3 actions, of which a different one is forbidden at each step; it raises if that one is taken."""

    action_space = spaces.Discrete(3)

    def mask(self):
        mask = np.ones(3, np.int8)
        mask[self.played % 3] = 0
        return mask

    def reset(self, *, seed=None, options=None):
        observation, info = super().reset(seed=seed)
        return observation, info | {"action_mask": self.mask()}

    def step(self, action):
        if not self.mask()[action]:
            raise ValueError(f"action {action} is forbidden")
        answer = super().step(action)
        return *answer[:4], {"action_mask": self.mask()}


class UnevenEnds(Masked):
    """Masked with episodes of 2 to 5 steps, so that environments end in different ones."""

    def reset(self, *, seed=None, options=None):
        answer = super().reset(seed=seed)
        self.length = 2 + int(self.np_random.integers(4))
        return answer


class DictMasked(Masked):
    """Masked with the mask as a key of a Dict observation."""

    observation_space = spaces.Dict({"seen": UNIT, "action_mask": spaces.MultiBinary(3)})

    def observe(self):
        return {"seen": super().observe(), "action_mask": self.mask()}

    def reset(self, *, seed=None, options=None):
        observation, _ = super().reset(seed=seed)
        return observation, {}

    def step(self, action):
        return *super().step(action)[:4], {}


class DictObs(Probe):
    """A Dict of a vector, a Discrete and a Tuple: 2 + 3 + (1 + 4) = 10 numbers, in Gymnasium's order of keys."""

    observation_space = spaces.Dict({"vector": UNIT, "kind": spaces.Discrete(3), "pair": spaces.Tuple(
        (spaces.Box(-1, 1, (1,), np.float32), spaces.MultiBinary(4)))})

    def observe(self):
        return {"vector": super().observe(), "kind": self.played % 3,
                "pair": (np.full(1, self.cue, np.float32), np.ones(4, np.int8))}


class Rich(DictMasked):
    """A Dict of an image, a vector, numbers and a mask: the image shows the vector's cue, the number the time."""

    observation_space = spaces.Dict({
        "camera": spaces.Box(0, 255, (9, 8, 3), np.uint8), "seen": UNIT, "action_mask": spaces.MultiBinary(3),
        "more": spaces.Tuple((spaces.Discrete(5, start=1), spaces.MultiBinary(2)))})

    def observe(self):
        image = np.full((9, 8, 3), 100 * (self.cue > 0), np.uint8)
        image[self.played] = 255
        return super().observe() | {"camera": image, "more": (1 + self.played % 5, np.array([0, 1], np.int8))}


class Hybrid(Masked):
    """Actions are a Dict of one of Masked's, a vector and switches; it raises if they are no element of their space."""

    action_space = spaces.Dict({"choice": spaces.Discrete(3), "more": spaces.Tuple((
        spaces.Box(-1, 1, (2,), np.float32), spaces.MultiBinary(2)))})

    def step(self, action):
        if not self.action_space.contains(action):
            raise ValueError(f"action {action} is not in {self.action_space}")
        self.moved = float(action["more"][0][0])
        return super().step(action["choice"])

    def reward(self, action):
        return self.moved * self.cue


class Image(Probe):
    """Observations are (12, 10, 3) uint8, channels last, with a different number per channel in one pixel."""

    observation_space = spaces.Box(0, 255, (12, 10, 3), np.uint8)

    def observe(self):
        image = np.zeros((12, 10, 3), np.uint8)
        image[0, 1] = 10, 20, 30
        return image


class Echo(Probe):
    """The observation is the last action (its first 2 numbers)."""

    def reset(self, *, seed=None, options=None):
        self.given = np.zeros(2)
        return super().reset(seed=seed)

    def step(self, action):
        assert self.action_space.contains(action), action
        self.given = np.resize(np.asarray(action, float), 2)
        return super().step(action)

    def observe(self):
        return (self.given / 10).astype(np.float32)


class Started(Echo):
    action_space = spaces.Discrete(2, start=5)


class Several(Echo):
    action_space = spaces.MultiDiscrete([3, 2])


class Switches(Echo):
    action_space = spaces.MultiBinary(2)


class Bounded(Echo):
    action_space = spaces.Box(np.array([-1, 0], np.float32), np.array([1, 2], np.float32))


class Spoken(Probe):
    action_space = spaces.Text(5)


class Endless(Probe):
    length = 10**9


class Faulty(Probe):
    """Misbehaves at step number `at`, counted over all episodes, in the way that `how` names."""

    def __init__(self, how="raises", at=7):
        self.how, self.at, self.age = how, at, 0

    def step(self, action):
        self.age += 1
        answer = super().step(action)
        return self.misbehave(answer) if self.age == self.at else answer

    def misbehave(self, answer):
        observation, reward, *rest = answer
        if self.how == "raises":
            raise RuntimeError("the motor is on fire")
        if self.how == "hangs":
            time.sleep(3600)
        if self.how == "stuck":  # in a native call, which no signal interrupts
            libc, mutex = ctypes.CDLL(None), (ctypes.c_char * 64)()
            libc.pthread_mutex_lock(mutex)
            libc.pthread_mutex_lock(mutex)
        if self.how == "dies":
            os.kill(os.getpid(), signal.SIGKILL)
        broken = {"nan_obs": (observation * np.nan, reward), "inf_reward": (observation, np.inf),
                  "no_reward": (observation, None), "two_rewards": (observation, np.arange(2.0)),
                  "wrong_shape": (observation[:1], reward),
                  "wrong_dtype": (observation.astype(np.float64), reward), "list_obs": (list(observation), reward)}
        return answer[:4] if self.how == "four_values" else (*broken[self.how], *rest)


class Mortal(Probe):
    """If several processes train together, that of rank 1 ends at the 200th step of all its environments."""

    steps = 0

    def reward(self, action):
        Mortal.steps += 1
        if Mortal.steps == 200 and os.environ.get("RANK") == "1":
            os._exit(7)
        return 1.0


class Paced(gymnasium.Wrapper):
    """CartPole, in which a step takes 10 ms until the file that the environment variable PACE names exists."""

    def __init__(self):
        super().__init__(gymnasium.make("CartPole-v1").unwrapped)

    def step(self, action):
        if not os.path.exists(os.environ.get("PACE", "/")):
            time.sleep(0.01)
        return self.env.step(action)


class Irregular(gymnasium.Wrapper):
    """CartPole, in which a step takes up to `most` seconds; no seed decides how long."""

    def __init__(self, most=0.0):
        super().__init__(gymnasium.make("CartPole-v1").unwrapped)
        self.most = most

    def step(self, action):
        time.sleep(self.most * int.from_bytes(os.urandom(1)) / 255)
        return self.env.step(action)


class Positions(gymnasium.ObservationWrapper):
    """CartPole, of which only the positions of cart and pole are observed: velocities need a memory."""

    def __init__(self):
        super().__init__(gymnasium.make("CartPole-v1").unwrapped)
        self.observation_space = spaces.Box(-5, 5, (2,), np.float32)

    def observation(self, observation):
        return observation[[0, 2]]


PROBES = (Constant, Observed, Delayed, Seconds, Acting, Looking, Bound, Truncated, Memory, Masked, UnevenEnds, DictMasked, DictObs,
          Rich, Hybrid, Image, Echo, Started, Several, Switches, Bounded, Spoken, Endless, Mortal)
FAULTS = ("raises", "hangs", "stuck", "dies", "nan_obs", "inf_reward", "no_reward", "two_rewards", "wrong_shape", "wrong_dtype",
          "list_obs", "four_values")


def register_probes():
    """Register `tests.support.probes:NAME-v0`; faults have their own names, such as `Faulty_nan_obs-v0`."""
    for probe in PROBES:
        gymnasium.register(f"{probe.__name__}-v0", entry_point=probe)
    gymnasium.register("Paced-v0", entry_point=Paced, max_episode_steps=500)
    gymnasium.register("Irregular-v0", entry_point=Irregular, max_episode_steps=20)
    gymnasium.register("Swinging-v0", entry_point="gymnasium.envs.classic_control:PendulumEnv", max_episode_steps=20)
    gymnasium.register("Positions-v0", entry_point=Positions, max_episode_steps=200)
    gymnasium.register("RichCut-v0", entry_point=Rich, max_episode_steps=3)
    for how in FAULTS:
        gymnasium.register(f"Faulty_{how}-v0", entry_point=Faulty, kwargs={"how": how})


register_probes()
