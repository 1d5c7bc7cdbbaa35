"""Environments with a normaliser, as the loops hold them."""

from proximo.config import Config
from proximo.envs.normalize import Normalizer, keep_step, make_normalizer

RAW = Normalizer(start=lambda: None, reset=keep_step, step=keep_step, spec=None)  # normalises nothing


class Normalized:
    """Passes every step of environments through the normaliser of a configuration. Everything else is theirs.

    Attributes:
        envs: The environments.
        statistics: Everything that was counted.
    """

    def __init__(self, envs, cfg: Config):
        self.envs, self.normalizer = envs, make_normalizer(cfg, envs)
        self.statistics = self.normalizer.start()

    def __getattr__(self, name):
        return getattr(self.envs, name)

    def reset(self):
        self.statistics, step = self.normalizer.reset(self.statistics, self.envs.reset())
        return step

    def step(self, action):
        self.statistics, step = self.normalizer.step(self.statistics, self.envs.step(action))
        return step
