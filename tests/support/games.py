"""Games of several agents for tests, with the interface of PettingZoo's ParallelEnv and no base class."""

import numpy as np
from gymnasium import spaces


class Corridor:
    """Agents on a line leave it at +-`size` (terminated) or after `length` steps (truncated); a mask forbids one action.

    With `late`, the last agent joins after that many steps.
    """

    metadata = {"name": "corridor", "render_modes": ["rgb_array"], "render_fps": 7}
    render_mode = None

    def __init__(self, agents=3, size=4, length=15, late=0, masked=""):
        self.possible_agents = [f"agent_{k}" for k in range(agents)]
        self.size, self.length, self.late, self.masked, self.boost = size, length, late, masked, 0.0
        self.rng = np.random.default_rng(0)

    def observation_space(self, agent):
        box = spaces.Box(-20, 20, (3,), np.float32)
        return spaces.Dict(observation=box, action_mask=spaces.MultiBinary(3)) if self.masked == "obs" else box

    def action_space(self, agent):
        return spaces.Discrete(3)

    def answer(self, agents):
        """Return the observations and infos of some agents."""
        rows = {a: np.array([self.place[a], self.time, self.possible_agents.index(a)], np.float32) for a in agents}
        masks = {a: np.array([self.place[a] % 2 == 0, True, True], np.int8) for a in agents}
        if self.masked == "obs":
            return {a: {"observation": rows[a], "action_mask": masks[a]} for a in agents}, {a: {} for a in agents}
        return rows, {a: {"action_mask": masks[a]} if self.masked else {} for a in agents}

    def reset(self, seed=None, options=None):
        if seed is not None:
            self.rng = np.random.default_rng(seed)
        self.agents = list(self.possible_agents[:-1] if self.late else self.possible_agents)
        self.place = {a: int(self.rng.integers(-2, 3)) for a in self.possible_agents}
        self.time = 0
        return self.answer(self.agents)

    def step(self, actions):
        assert list(actions) == self.agents
        self.time += 1
        for agent, action in actions.items():
            assert not self.masked or self.place[agent] % 2 == 0 or action != 0, "this action was forbidden"
            self.place[agent] += int(action) - 1
        joins = self.possible_agents[-1:] if self.late and self.time == self.late else []
        observations, infos = self.answer([*self.agents, *joins])
        rewards = {a: self.boost - abs(self.place[a]) for a in self.agents}
        terminated = {a: abs(self.place[a]) >= self.size for a in self.agents}
        truncated = dict.fromkeys(self.agents, self.time >= self.length)
        self.agents = [a for a in self.agents if not (terminated[a] or truncated[a])] + joins
        return observations, rewards, terminated, truncated, infos

    def set_boost(self, boost):
        self.boost = boost
        return boost

    def render(self):
        return np.full((6, 8, 3), self.time, np.uint8)

    @property
    def unwrapped(self):
        return self

    def close(self):
        """Nothing is open."""
