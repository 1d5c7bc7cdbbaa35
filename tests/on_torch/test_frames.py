"""A rollout that stores each frame once, against the observations that were written to it and against whole ones."""

from types import SimpleNamespace

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces

import proximo
from proximo.config import Config
from proximo.envs.atari import make_atari
from proximo.envs.envpool import make_envpool_atari
from proximo.envs.gym import make_gym
from proximo.envs.machine.memory_needs import check_memory
from proximo.envs.pettingzoo import make_pettingzoo
from proximo.errors import EnvError, UsageError
from proximo.on_torch.compile.compiled import pack_minibatch, unpack_gradient
from proximo.on_torch.frames import FrameStacks, FrameStorage, stored_frames
from proximo.on_torch.learner import make_batch
from proximo.on_torch.repro import evidence
from proximo.on_torch.rollout import Storage
from proximo.on_torch.setup import make_storage
from proximo.protocols import Episode, FrameStack, Spec, Step
from proximo.types import Batch, Carry, Coefficients, Minibatches
from proximo.variants import Atari, AtariEnvpool, SelfPlay
from tests.support.play import random_actions

BEGINNINGS = ("repeated", "black", "continued")
HEAD = SimpleNamespace(action_shape=(), action_dtype=np.dtype(np.int64))


class Filmed:
    """N environments of random frames whose episodes end at random, the next one beginning with a random kind of stack.

    Some frames are black, and some equal those before them.
    """

    arrays, metric_names, play, players, keeps_state = "numpy", (), "host", (), False
    obs_dtype, action_space, observation_space = np.dtype(np.uint8), spaces.Discrete(2), None

    def __init__(self, rng, frames, constant, ends, num_envs):
        self.rng, self.frames, self.ends, self.num_envs = rng, frames, ends, num_envs
        width = frames.length * frames.channels
        self.obs_shape = (width + constant, 3, 2)
        self.obs = rng.integers(0, 256, (num_envs, *self.obs_shape), np.uint8)  # what a resume may begin with
        self.stack = self.obs[:, :width].reshape(num_envs, frames.length, frames.channels, 3, 2)
        self.first = np.zeros(num_envs, bool)

    def carry(self):
        """Return what the next rollout continues from."""
        return Carry(obs=torch.from_numpy(self.obs), mask=None, first=torch.from_numpy(self.first), state=(),
                     statistics=None)

    def step(self, action):
        self.first = self.rng.random(self.num_envs) < self.ends
        newest = self.rng.integers(0, 256, self.stack[:, 0].shape, np.uint8)
        newest[self.rng.random(self.num_envs) < 0.2] = 0
        same = self.rng.random(self.num_envs) < 0.2
        newest[same] = self.stack[same, -1]
        self.stack[:, :-1] = self.stack[:, 1:].copy()
        self.stack[:, -1] = newest
        for n in np.flatnonzero(self.first):
            kind = self.rng.choice(BEGINNINGS)
            if kind != "continued":
                self.stack[n, :-1] = newest[n] if kind == "repeated" else 0
        numbers, no = np.zeros(self.num_envs, np.float32), np.zeros(self.num_envs, bool)
        return Step(obs=self.obs, first=self.first, mask=None, reward=numbers, terminated=no, truncated=no,
                    final_obs=None, valid=~no, episode=Episode(finished=no, ret=numbers, length=no), metrics={})


def storages(envs, num_steps):
    """Make a rollout buffer of frames, and one of whole observations."""
    return [kind(envs, envs.obs_dtype, num_steps, HEAD, None, torch.device("cpu")) for kind in (FrameStorage, Storage)]


def written(storage):
    """Return the observations of a rollout as rows, and as two environments over time."""
    number, pair = storage.whole("reward"), torch.tensor([1, 0])
    stored = storage.rollout(number, number, number).obs
    steps, envs = storage.arrays["reward"].shape
    rows = torch.from_numpy(np.random.default_rng(0).permutation(steps * envs))
    return stored.flatten(0, 1).index_select(0, rows), stored.index_select(1, pair)


@pytest.mark.parametrize("seed", range(60))
def test_random_episodes(seed):
    """Three rollouts, one after the other, with ends anywhere: at their borders, and twice in a row."""
    rng = np.random.default_rng(seed)
    channels = int(rng.choice([1, 3]))
    envs = Filmed(rng, FrameStack(int(rng.integers(2, 6)), channels), int(rng.integers(3)) * (channels == 1),
                  rng.choice([0.0, 0.1, 0.5, 1.0]), int(rng.integers(2, 5)))
    num_steps = int(rng.integers(1, 9))
    both = storages(envs, num_steps)
    for _ in range(3):
        for storage in both:
            storage.start(envs.carry())
        for t in range(num_steps):
            assert torch.equal(*(storage.rows["obs"][t] for storage in both))  # what is acted on
            step = envs.step(None)
            for storage in both:
                storage.put(t, step)
        assert torch.equal(*(storage.rows["obs"][-1] for storage in both))
        for found, expected in zip(*map(written, both), strict=True):
            assert torch.equal(found, expected) and found.is_contiguous() == expected.is_contiguous()


@pytest.mark.parametrize(("channels", "constant", "alone"), [(1, 2, True), (3, 0, True), (3, 1, False), (2, 3, False)])
def test_channels_that_never_change_are_stored_beside_frames_of_one_channel(channels, constant, alone):
    """Beside frames of three channels, learning saw each of them three times. Then whole observations are stored."""
    envs = Filmed(np.random.default_rng(0), FrameStack(2, channels), constant, 0.5, 2)
    assert envs.obs_shape[0] == 2 * channels + constant
    assert (stored_frames(Config(model="cnn"), envs) is not None) is alone


def test_a_beginning_of_another_kind_is_an_error():
    envs = Filmed(np.random.default_rng(0), FrameStack(3, 1), 0, 1.0, 2)
    storage, _ = storages(envs, 4)
    storage.start(envs.carry())
    step = envs.step(None)
    envs.stack[1, 0] = 7
    with pytest.raises(EnvError, match="environment 1: Filmed declares stacks of 3 frames, but .* Set `frames = None`"):
        storage.put(0, step)


class Film(gymnasium.Env):
    """Colours that are different at every step, for up to four steps; action 1 ends an episode."""

    observation_space, action_space = spaces.Box(0, 255, (16, 16, 3), np.uint8), spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.played = 0
        return self.picture(), {}

    def picture(self):
        return self.np_random.integers(0, 256, (16, 16, 3), np.uint8)

    def step(self, action):
        self.played += 1
        return self.picture(), float(action), action == 1 and self.played > 1, self.played == 4, {}


FILM = "tests.on_torch.test_frames:Film-v0"
gymnasium.register("Film-v0", Film)
SMALL = {"screen_size": 20, "noop_max": 1}
SUITES = [
    ("gym", (), make_gym, Config(env_id=FILM, frame_stack=3)),
    ("gym, next step", (), make_gym, Config(env_id=FILM, frame_stack=2, grayscale=True, autoreset="next-step")),
    ("ale", ("ale_py",), make_atari, Atari(frame_skip=20, grayscale=False, **SMALL)),
    ("envpool", ("envpool_assets",), make_envpool_atari, AtariEnvpool(frame_skip=20, **SMALL)),
    ("self-play", ("multi_agent_ale_py", "tinyscaler"), make_pettingzoo, SelfPlay(max_cycles=60, noop_max=1, screen_size=20)),
]


@pytest.mark.parametrize(("packages", "make", "cfg"), [suite[1:] for suite in SUITES], ids=[x[0] for x in SUITES])
def test_every_suite_declares_what_it_returns(packages, make, cfg):
    for package in packages:
        pytest.importorskip(package)
    envs, rng = make(cfg, [1, 2]), np.random.default_rng(0)
    assert envs.frames.length == cfg.frame_stack and envs.num_envs == 2
    both, step, begun = storages(envs, 20), envs.reset(), 0
    for _ in range(3):
        for storage in both:
            storage.start(Carry(obs=torch.tensor(step.obs), mask=None, first=torch.tensor(step.first), state=(),
                                statistics=None))
        for t in range(20):
            step = envs.step(random_actions(envs, step, rng))
            begun += int(step.first.sum())
            for storage in both:
                storage.put(t, step)
        for found, expected in zip(*map(written, both), strict=True):
            assert torch.equal(found, expected)
    envs.close()
    assert begun >= 4


def test_observations_that_are_no_stacks_declare_none():
    """Neither one picture, nor a user's own channels, nor stacks of pictures with their channels last."""
    for cfg in (Config(env_id=FILM), Config(env_id="CartPole-v1")):
        envs = make_gym(cfg, [1])
        assert envs.frames is None
        envs.close()


@pytest.mark.parametrize(("fields", "whole"), [({}, False), ({"norm_obs": True}, True), ({"model": "mlp"}, True),
                                              ({"env_workers": 2, "env_groups": 2}, True)])
def test_where_frames_are_stored(fields, whole):
    cfg = Config(**{"model": "impala"} | fields)
    envs = SimpleNamespace(frames=FrameStack(4, 1))
    assert stored_frames(cfg, envs) == (None if whole else envs.frames)
    assert stored_frames(cfg, SimpleNamespace(frames=None)) is stored_frames(
        cfg, SimpleNamespace(frames=FrameStack(1, 3))) is None


def test_memory():
    """A fourth, but for the stacks that a rollout begins with; and the sentence counts frames."""
    envs = Filmed(np.random.default_rng(0), FrameStack(4, 1), 0, 0.1, 2)
    agent = SimpleNamespace(head=HEAD, evaluates_later=False)
    cfg, cpu = Config(model="impala", num_steps=100), torch.device("cpu")
    once = make_storage(cfg, envs, envs.obs_dtype, agent, envs.carry(), cpu)
    obs = once.rollout(None, None, None).obs
    assert isinstance(obs, FrameStacks) and obs.frames.shape == (2 * 104 + 1, 1, 3, 2)
    assert sum(x.nbytes for x in once.arrays.values() if x.ndim == 5) == 2 * 4 * 3 * 2  # what is acted on
    agent.evaluates_later = True
    whole = make_storage(cfg, envs, envs.obs_dtype, agent, envs.carry(), cpu)
    assert whole.rollout(None, None, None).obs.shape == (100, 2, 4, 3, 2)
    spec = Spec((4, 84, 84), np.dtype(np.uint8), spaces.Discrete(2))
    with pytest.raises(UsageError, match=r"frames of shape \(1, 84, 84\) and 7,090 bytes need 7.1 EB of memory"):
        check_memory(Config(num_steps=10**9), spec, 10**6, FrameStack(4, 1))


def test_a_compiled_gradient_takes_frames_and_their_slots():
    """Packed into tensors and back, the batch selects the same observations."""
    obs = FrameStacks(frames=torch.arange(6)[:, None, None, None].to(torch.uint8), slots=torch.arange(4)[:, None] + torch.arange(3))
    x = torch.zeros(4)
    batch = Batch(obs=obs, mask=None, first=None, state=(), action=x, logprob=x, value=x, ret=x, valid=x)
    minibatch = Minibatches(index=torch.tensor([3, 1]), advantage=x, count=x, noise=None)

    def gradient(batch, minibatch, coefficients):
        return batch.obs.index_select(0, minibatch.index), coefficients

    given = Coefficients(clip_coef=torch.tensor(0.5), ent_coef=torch.tensor(0.25))
    found, coefficients = unpack_gradient(gradient, batch, minibatch)(*pack_minibatch(batch, minibatch, given))
    assert found[:, :, 0, 0].tolist() == [[3, 4, 5], [1, 2, 3]]
    assert (float(coefficients.clip_coef), float(coefficients.ent_coef)) == (0.5, 0.25)


@pytest.mark.parametrize("fields", [{}, {"recurrent": "gru"}, {"overlap": True}], ids=["rows", "sequences", "overlap"])
def test_training_is_the_same(fields, monkeypatch):
    """Bit for bit as with whole observations; what is stored of a failed update are whole observations."""
    def trained():
        cfg = Config(env_id=FILM, model="impala", frame_stack=2, num_envs=2, num_steps=6, num_minibatches=2,
                     update_epochs=1, total_timesteps=24, logger="none", **fields)
        *_, last = proximo.iterations(cfg)
        return last.weights()

    kept = []
    monkeypatch.setattr("proximo.on_torch.train.make_batch", lambda rollout, *args: kept.append(rollout) or make_batch(
        rollout, *args))
    once = trained()
    stored = evidence(torch.nn.Linear(1, 1), None, kept[-1], (), 1)["rollout"]["obs"]
    assert isinstance(kept[-1].obs, FrameStacks)
    monkeypatch.setattr("proximo.envs.gym_loop.frames_of", lambda *_: None)
    whole = trained()
    assert isinstance(kept[-1].obs, torch.Tensor) and np.array_equal(kept[-1].obs.numpy(), stored)
    assert once.keys() == whole.keys() and all(np.array_equal(once[name], whole[name]) for name in once)
