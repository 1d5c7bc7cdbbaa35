"""One emulated game of several players, with SuperSuit's preprocessing."""

from typing import Any

import numpy as np

from proximo.variants import SelfPlay

BLUE = 2  # the one colour channel in which players, ball and field differ in these games (SuperSuit's mode "B")


class SelfPlayGame:
    """One emulator with frame skip, the maximum of the last two frames, the blue channel, resizing and frame stacking.

    The frames are those of SuperSuit's max_observation_v0(2), frame_skip_v0, color_reduction_v0("B"), resize_v1 and
    frame_stack_v1, in this order, in a quarter of the time: the screen is read only where a frame is needed. If a game
    is over in the second or third skipped frame, the earlier one of the two frames differs; that observation ends the
    episode by termination, so its value is not computed.

    Attributes:
        stack: (frame_stack, size, size) uint8, the newest frame last.
        alive: (P,) bool, the players who are still in the game.

    Args:
        env: PettingZoo's environment, without wrappers.
        cfg: Its `frame_skip`, `max_pool`, `noop_max`, `sticky`, `max_cycles`, `screen_size` and `frame_stack` are read.
        seed: Seed of the emulator and of the no-ops.
    """

    def __init__(self, env: Any, cfg: SelfPlay, seed: int) -> None:
        from multi_agent_ale_py.ale_python_interface import ale_lib
        from tinyscaler import scale

        self.ale, self.engine, self.scale = env.ale, ale_lib, scale
        self.num_players, self.action_mapping = env.num_players, env.action_mapping.astype(np.intc)
        self.max_cycles, self.skip, self.max_pool, self.noop_max = (cfg.max_cycles, cfg.frame_skip, cfg.max_pool,
                                                                    cfg.noop_max)
        self.sticky = cfg.sticky or 0.0
        env.reset(seed=seed)
        self.random = np.random.default_rng(seed)
        width, height = self.ale.getScreenDims()
        self.screen = np.zeros((2, height, width, 3), np.uint8)  # the previous frame, and the newest one
        self.small = np.zeros((height, width, 1), np.uint8)
        self.stack = np.zeros((cfg.frame_stack, cfg.screen_size, cfg.screen_size), np.uint8)
        self.played, self.gain = np.zeros(self.num_players, np.intc), np.zeros(self.num_players, np.intc)
        self.frame, self.alive = 0, np.ones(self.num_players, bool)

    def reset(self) -> None:
        """Begin a new game: up to noop_max frames pass before the first action (detail 14), so that games differ."""
        noops = int(self.random.integers(1, self.noop_max + 1)) if self.noop_max else 0
        self.ale.reset_game()
        self.frame, self.alive = 0, np.ones(self.num_players, bool)
        self.played[:] = 0
        self._read_screen()
        for k in range(noops):
            self._play_frame()
            if k >= noops - 2:
                self._read_screen()
        self.stack[:] = 0
        self._push_frame(newest_only=noops == 0)

    def step(self, action: np.ndarray) -> tuple[np.ndarray, np.ndarray, bool, bool]:
        """Play one action of each player for frame_skip frames.

        Args:
            action: (P,) integers.

        Returns:
            Raw rewards (P,), which players are out of the game (P,), whether the game is over, and whether it was cut
            by max_cycles.
        """
        wanted = self.action_mapping[action] * self.alive
        total = np.zeros(self.num_players, np.intc)
        for k in range(self.skip):
            if self.sticky:  # drawn here, because the emulator's own draws are not restored exactly by load()
                np.copyto(self.played, wanted, where=self.random.random(self.num_players) >= self.sticky)
            else:
                self.played[:] = wanted
            total += self._play_frame() * self.alive
            over, cut = self.ale.game_over(), self.frame >= self.max_cycles
            if over or k >= self.skip - 2 or self.frame >= self.max_cycles - 1:
                self._read_screen()
            if over or cut:
                break
        out = np.ones(self.num_players, bool) if over else self.ale.allLives()[:self.num_players] < 0
        self._push_frame(newest_only=False)
        return total, out, over or bool(out.all()), cut

    def _play_frame(self) -> np.ndarray:
        self.engine.actMulti(self.ale.obj, self.played.ctypes.data, self.gain.ctypes.data)
        self.frame += 1
        return self.gain

    def _read_screen(self) -> None:
        self.screen[0] = self.screen[1]
        self.engine.getScreenRGB(self.ale.obj, self.screen[1].ctypes.data)

    def _push_frame(self, newest_only: bool) -> None:
        before, newest = self.screen[0, ..., BLUE], self.screen[1, ..., BLUE]
        np.maximum(newest if newest_only or not self.max_pool else before, newest, out=self.small[..., 0])
        self.stack[:-1] = self.stack[1:]
        self.stack[-1] = self.scale(self.small, self.stack.shape[:0:-1], mode="bilinear")[..., 0]

    def render(self) -> np.ndarray:
        """Return the shared screen, (H, W, 3) uint8."""
        return self.ale.getScreenRGB()

    def state(self) -> dict[str, Any]:
        """Return the emulator and everything else that continues the game."""
        system = self.ale.cloneSystemState()
        emulator = self.ale.encodeState(system)
        self.ale.deleteState(system)
        return {"emulator": emulator, "screen": self.screen.copy(), "stack": self.stack.copy(), "frame": self.frame,
                "alive": self.alive.copy(), "played": self.played.copy(), "random": self.random.bit_generator.state}

    def load(self, state: dict[str, Any]) -> None:
        """Continue from what state() returned."""
        system = self.ale.decodeState(np.ascontiguousarray(state["emulator"], np.uint8))
        self.ale.restoreSystemState(system)
        self.ale.deleteState(system)
        self.screen[:], self.stack[:], self.played[:] = state["screen"], state["stack"], state["played"]
        self.alive = np.array(state["alive"], bool)
        self.frame, self.random.bit_generator.state = int(state["frame"]), state["random"]
