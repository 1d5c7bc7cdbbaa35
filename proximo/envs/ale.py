"""One Atari game on an ALE emulator, with the semantics of the wrappers in openai/baselines (details 14-18, 20)."""

from pathlib import Path

import numpy as np

from proximo.variants import Atari

NOOP = 0  # code of the action that does nothing
MAX_FRAMES = 108_000  # 30 minutes of play; then the game is truncated


def noop_count(seed: int, game: int, noop_max: int) -> int:
    """Return the number of no-ops that begin a game (detail 14).

    It is a function of the seed of the environment and the number of the game, therefore it needs no state.
    """
    return int(np.random.default_rng((seed, game)).integers(1, noop_max + 1)) if noop_max else 0


def clips_rewards(cfg: Atari) -> bool:
    """Return whether rewards are replaced by their sign (detail 19). None (the compact variant): with images only."""
    return cfg.model != "mlp" if cfg.clip_rewards is None else cfg.clip_rewards


def sticky_draws(seed: int, game: int, drawn: int) -> np.random.Generator:
    """Return the generator of sticky actions in a game after some draws, each of one number."""
    bits = np.random.PCG64((seed, game, 1))
    bits.advance(drawn)
    return np.random.Generator(bits)


class AleGame:
    """One emulator with the wrappers.

    Args:
        rom: Path of the game's ROM.
        seed: Seed of the emulator and of the no-ops.
        cfg: Its `noop_max`, `frame_skip`, `max_pool`, `end_on_life_loss`, `fire_reset`, `screen_size` and `grayscale`
            are read.
        sticky: Probability that the last action is repeated, at every frame. It is drawn here, because a saved emulator
            does not contain its last action.
        max_frames: Frames after which a game is truncated.
        stack: (frame_stack * channels, size, size) uint8, which is written in place; the newest frame is last.
    """

    def __init__(self, rom: Path, seed: int, cfg: Atari, sticky: float, max_frames: int, stack: np.ndarray) -> None:
        import ale_py
        import cv2

        self._rom, self._seed, self._cfg, self._cv2, self._stack = rom, seed, cfg, cv2, stack
        ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
        self._ale, self._restored = ale_py.ALEInterface(), ale_py.ALEState
        self._sticky = sticky
        self._ale.setFloat("repeat_action_probability", 0.0)
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
        self._played, self._drawn = NOOP, 0
        self.bonus = 0
        self.unreported: int | None = None

    def reset(self) -> None:
        """Begin the first game again, from the seed."""
        if self._games:
            self._load_rom()
        self.restart()

    def step(self, action: int) -> tuple[int, bool, bool, bool]:
        """Play one action for frame_skip frames and write the stack.

        Returns:
            Raw reward, terminated, truncated, and whether the game is over. A lost life terminates (detail 16).
        """
        reward = self._hold(self._codes[action])
        lost = self._life_lost()
        stack, channels = self._stack, self._channels
        if len(stack) > channels:
            stack[:-channels] = stack[channels:]
        self._draw()
        terminated = lost or (self._over and self._ale.game_over(with_truncation=False))
        return reward, terminated, self._over and not terminated, self._over

    def restart(self) -> None:
        """Begin a new game, or play a no-op after a lost life; then press FIRE (detail 17) and fill the stack.

        Afterwards `bonus` is the raw reward of these frames, and `unreported` that of a game which ended during them,
        or None if none did.
        """
        self.bonus, self.unreported = 0, None
        self._revive()
        for press in self._presses:
            self._press(press)
            if self._life_lost() or self._over:
                self._revive()
        self._draw()
        stack, channels = self._stack, self._channels
        stack[:] = np.tile(stack[-channels:], (len(stack) // channels, 1, 1))

    def _revive(self) -> None:
        if self._over or not self._cfg.end_on_life_loss:
            self._begin()
        else:
            self._press(self._codes[0])
            if self._over:
                self._begin()
        self._lives = self._ale.lives()

    def _press(self, code: int) -> None:
        """Hold a button that the agent did not choose."""
        self.bonus += self._hold(code)
        if self._over:
            self.unreported, self.bonus = (self.unreported or 0) + self.bonus, 0

    def _begin(self) -> None:
        ale = self._ale
        ale.reset_game()
        self._played, self._drawn = NOOP, 0
        self._random = sticky_draws(self._seed, self._games + 1, 0)
        for _ in range(noop_count(self._seed, self._games, self._cfg.noop_max)):
            self.bonus += self._act(NOOP)
            if ale.game_over():
                ale.reset_game()
        self._games, self._over = self._games + 1, False
        ale.getScreenRGB(self._frames[0])
        self._seen = 1

    def _hold(self, code: int) -> int:
        """Play an action for frame_skip frames (detail 15) and read the screens that are needed. Return the reward."""
        ale, skip = self._ale, self._cfg.frame_skip
        first_read = skip - 2 if self._cfg.max_pool else skip - 1
        reward = seen = 0
        for frame in range(skip):
            reward += self._act(code)
            self._over = ale.game_over()
            if frame >= first_read or self._over:
                ale.getScreenRGB(self._frames[seen])
                seen += 1
            if self._over:
                break
        self._seen = seen
        return reward

    def _act(self, code: int) -> int:
        """Play one frame. With sticky actions, it may repeat the action of the frame before (Machado et al. 2018)."""
        if self._sticky:
            self._drawn += 1
            if self._random.random() < self._sticky:
                code = self._played
            self._played = code
        return int(self._ale.act(code))

    def _life_lost(self) -> bool:
        """Return whether a life was lost, but not the last one, which in some games (Qbert) ends before the game."""
        lives, before = self._ale.lives(), self._lives
        self._lives = lives
        return self._cfg.end_on_life_loss and 0 < lives < before

    def _draw(self) -> None:
        """Write the newest frame: the maximum of two frames, gray, resized by area (details 15, 18)."""
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
        """Return the emulator as uint8, and (seed, games begun, lives, last action, draws of sticky actions)."""
        system = np.frombuffer(self._ale.cloneSystemState().serialize(), np.uint8)
        return system, np.array([self._seed, self._games, self._lives, self._played, self._drawn])

    def load(self, system: np.ndarray, counts: np.ndarray) -> None:
        """Continue from what state() returned. The caller restores the stack.

        An emulator that has not played a frame yet continues some games differently (Qbert, Tetris), so it plays one.
        """
        self._ale.act(NOOP)
        self._ale.restoreSystemState(self._restored(system.tobytes()))
        self._seed, self._games, self._lives, *sticky = (int(count) for count in counts)
        self._played, self._drawn = sticky or (NOOP, 0)  # absent in checkpoints of version 0.1
        self._random, self._over = sticky_draws(self._seed, self._games, self._drawn), False

    def screen(self) -> np.ndarray:
        """Return the screen, (H, W, 3) uint8."""
        return self._ale.getScreenRGB()
