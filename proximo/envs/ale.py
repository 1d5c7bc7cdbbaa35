"""One Atari game on an ALE emulator, with the semantics of openai/baselines' wrappers (details 14-18, 20)."""

from pathlib import Path

import numpy as np

from proximo.variants import Atari

MAX_FRAMES = 108_000  # half an hour of play; then the game is cut (truncated)


def noop_count(seed: int, game: int, noop_max: int) -> int:
    """No-ops that begin the game-th game of an environment (detail 14): a function of its seed, so no state to keep."""
    return int(np.random.default_rng((seed, game)).integers(1, noop_max + 1)) if noop_max else 0


def clips_rewards(cfg: Atari) -> bool:
    """Detail 19; None (the compact variant) means with images only."""
    return cfg.model != "mlp" if cfg.clip_rewards is None else cfg.clip_rewards


class AleGame:
    """One emulator behind the wrappers; `stack` (frame_stack * channels, size, size) uint8 is written in place."""

    def __init__(self, rom: Path, seed: int, cfg: Atari, sticky: float, max_frames: int, stack: np.ndarray) -> None:
        import ale_py
        import cv2

        self._rom, self._seed, self._cfg, self._cv2, self._stack = rom, seed, cfg, cv2, stack
        ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
        self._ale, self._restored = ale_py.ALEInterface(), ale_py.ALEState
        self._ale.setFloat("repeat_action_probability", sticky)
        self._ale.setInt("max_num_frames_per_episode", max_frames)
        self._load_rom()
        actions = self._ale.getMinimalActionSet()
        self.num_actions = len(actions)
        self._codes = [int(action.value) for action in actions]
        fires = cfg.fire_reset and len(actions) >= 3 and actions[1] == ale_py.Action.FIRE
        self._presses = self._codes[1:3] if fires else []
        self._channels = 1 if cfg.grayscale else 3
        self._frames = np.zeros((2, *self._ale.getScreenDims(), 3), np.uint8)
        self._merged = np.zeros_like(self._frames[0])
        self._gray = np.zeros(self._frames.shape[1:3], np.uint8)

    def _load_rom(self) -> None:
        self._ale.setInt("random_seed", self._seed)
        self._ale.loadROM(self._rom)
        self._games, self._lives, self._over = 0, 0, True
        self.bonus = 0
        self.unreported: int | None = None

    def reset(self) -> None:
        """The first game again, from the seed."""
        if self._games:
            self._load_rom()
        self.restart()

    def step(self, action: int) -> tuple[int, bool, bool, bool]:
        """(raw reward, terminated, truncated, game over); writes the stack. A lost life terminates (detail 16)."""
        reward = self._hold(self._codes[action])
        lost = self._life_lost()
        stack, channels = self._stack, self._channels
        if len(stack) > channels:
            stack[:-channels] = stack[channels:]
        self._draw()
        terminated = lost or (self._over and self._ale.game_over(with_truncation=False))
        return reward, terminated, self._over and not terminated, self._over

    def restart(self) -> None:
        """What follows an end: a new game, or after a lost life a no-op; then FIRE (detail 17); fills the stack.

        `bonus` is the raw reward of these frames; `unreported` that of a game that ended within them, else None.
        """
        self.bonus, self.unreported = 0, None
        self._revive()
        for press in self._presses:
            self._press(press)
            if self._life_lost() or self._over:
                self._revive()
        self._draw()
        stack, channels = self._stack, self._channels
        for k in range(0, len(stack) - channels, channels):
            stack[k:k + channels] = stack[-channels:]

    def _revive(self) -> None:
        if self._over or not self._cfg.end_on_life_loss:
            self._begin()
        else:
            self._press(self._codes[0])
            if self._over:
                self._begin()
        self._lives = self._ale.lives()

    def _press(self, code: int) -> None:
        """Holds a button that the agent did not choose."""
        self.bonus += self._hold(code)
        if self._over:
            self.unreported, self.bonus = (self.unreported or 0) + self.bonus, 0

    def _begin(self) -> None:
        ale = self._ale
        ale.reset_game()
        for _ in range(noop_count(self._seed, self._games, self._cfg.noop_max)):
            self.bonus += ale.act(0)
            if ale.game_over():
                ale.reset_game()
        self._games, self._over = self._games + 1, False
        ale.getScreenRGB(self._frames[0])
        self._seen = 1

    def _hold(self, code: int) -> int:
        """One decision: the action for frame_skip frames (detail 15); keeps the frames that will be drawn."""
        ale, skip = self._ale, self._cfg.frame_skip
        kept = skip - 2 if self._cfg.max_pool else skip - 1
        reward = seen = 0
        for frame in range(skip):
            reward += ale.act(code)
            self._over = ale.game_over()
            if frame >= kept or self._over:
                ale.getScreenRGB(self._frames[seen])
                seen += 1
            if self._over:
                break
        self._seen = seen
        return reward

    def _life_lost(self) -> bool:
        """In some games (Qbert) the last life is gone a few frames before the game is over: that is not a lost life."""
        lives, before = self._ale.lives(), self._lives
        self._lives = lives
        return self._cfg.end_on_life_loss and 0 < lives < before

    def _draw(self) -> None:
        """The newest planes of the stack: the brighter of two frames, gray, resized by area (details 15, 18)."""
        cv2, size = self._cv2, (self._cfg.screen_size, self._cfg.screen_size)
        frame = self._frames[0]
        if self._seen == 2:
            frame = np.maximum(frame, self._frames[1], out=self._merged)
        if self._channels == 1:
            cv2.cvtColor(frame, cv2.COLOR_RGB2GRAY, dst=self._gray)
            cv2.resize(self._gray, size, dst=self._stack[-1], interpolation=cv2.INTER_AREA)
        else:
            small = cv2.resize(frame, size, interpolation=cv2.INTER_AREA)
            self._stack[-3:] = np.moveaxis(small, 2, 0)

    def state(self) -> tuple[np.ndarray, np.ndarray]:
        """The emulator with its random state, uint8; and (seed, games begun, lives)."""
        system = np.frombuffer(self._ale.cloneSystemState().serialize(), np.uint8)
        return system, np.array([self._seed, self._games, self._lives])

    def load(self, system: np.ndarray, counts: np.ndarray) -> None:
        self._ale.restoreSystemState(self._restored(system.tobytes()))
        self._seed, self._games, self._lives = (int(count) for count in counts)
        self._over = False

    def screen(self) -> np.ndarray:
        """(H, W, 3) uint8."""
        return self._ale.getScreenRGB()
