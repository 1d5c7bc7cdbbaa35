"""Image settings of any Gymnasium environment against Gymnasium's own wrappers and against loops by hand."""

import json
import sys

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.wrappers import FrameStackObservation, GrayscaleObservation, ResizeObservation

from proximo.cli.main import main
from proximo.config import Config
from proximo.envs.arrays.obs_layout import leaves, obs_layout
from proximo.envs.gym_loop import GymEnvs
from proximo.envs.images import ImageSettings, with_image_settings
from proximo.errors import EnvError, UsageError
from proximo.protocols import FrameStack


class Pictures(gym.Env):
    """Random pictures; the reward is the number of the step; nine steps an episode."""

    observation_space = spaces.Box(0, 255, (20, 24, 3), np.uint8)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return self.np_random.integers(0, 256, (20, 24, 3), np.uint8), {}

    def step(self, action):
        self.t += 1
        return self.np_random.integers(0, 256, (20, 24, 3), np.uint8), float(self.t), self.t >= 9, False, {"t": self.t}


class Robot(Pictures):
    """Pictures as one part of a structure, beside the time as a vector, numbers and a mask; it keeps what it returns."""

    observation_space = spaces.Dict({
        "time": spaces.Box(-9, 9, (1,), np.float32), "action_mask": spaces.MultiBinary(2),
        "sensors": spaces.Dict({"rear": spaces.Discrete(10), "front": Pictures.observation_space})})

    def seen(self, picture):
        time, mask = np.array([self.t], np.float32), np.array([1, self.t % 2], np.int8)
        self.kept = {"time": time, "action_mask": mask, "sensors": {"rear": self.t, "front": picture}}
        return self.kept

    def reset(self, *, seed=None, options=None):
        picture, info = super().reset(seed=seed)
        return self.seen(picture), info

    def step(self, action):
        picture, *rest = super().step(action)
        return self.seen(picture), *rest

    @staticmethod
    def parts(of):
        """The image, and the other parts; of an observation or of a space."""
        return of["sensors"]["front"], [of["time"], of["action_mask"], of["sensors"]["rear"]]


class Pair(Robot):
    """The same in a Tuple."""

    observation_space = spaces.Tuple((spaces.Box(-9, 9, (1,), np.float32), Pictures.observation_space))

    def seen(self, picture):
        self.kept = np.array([self.t], np.float32), picture
        return self.kept

    @staticmethod
    def parts(of):
        return of[1], [of[0]]


def settled(env, **values):
    return with_image_settings(env, ImageSettings(**values), "Pictures")


def test_gray_small_and_stacked_equals_gymnasiums_wrappers():
    """Gymnasium's stack has the frames as a new first axis, which is the channel axis here."""
    mine = settled(Pictures(), grayscale=True, resize=12, frame_stack=3)
    theirs = FrameStackObservation(ResizeObservation(GrayscaleObservation(Pictures()), (12, 12)), 3, padding_type="reset")
    assert mine.observation_space == spaces.Box(0, 255, (3, 12, 12), np.uint8) == theirs.observation_space
    one, other = mine.reset(seed=3)[0], theirs.reset(seed=3)[0]
    for _ in range(6):
        assert np.array_equal(one, other) and one.dtype == np.uint8
        one, other = mine.step(0)[0], theirs.step(0)[0]


WITHOUT_OPENCV = """
import sys

import gymnasium
import numpy as np

sys.modules["cv2"] = None


class Pictures(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(0, 255, (20, 24, 3), np.uint8)
    action_space = gymnasium.spaces.Discrete(2)
"""


def test_sizes_need_opencv_and_say_so(tmp_path, monkeypatch, capfd):
    """Only extras such as atari install it; Gymnasium's error ended train and check-env with a traceback."""
    monkeypatch.setitem(sys.modules, "cv2", None)
    (tmp_path / "pictures.py").write_text(WITHOUT_OPENCV)
    for command in ("check-env", "train"):
        assert main([command, "--env-file", str(tmp_path / "pictures.py"), "--resize", "12"]) == 2
        said = "".join(capfd.readouterr())
        assert "resize=12 needs OpenCV, which is not installed. Install it (pip install opencv-python-headless)" in said
        assert "Traceback" not in said


def test_a_stack_whose_channels_would_be_taken_for_columns_is_refused():
    """24 columns, and 27 channels from 9 frames."""
    class Tall(Pictures):
        observation_space = spaces.Box(0, 255, (40, 24, 3), np.uint8)

    assert settled(Tall(), frame_stack=8).observation_space.shape == (24, 40, 24)
    with pytest.raises(UsageError, match=r"frame_stack=9 makes images of Pictures of the shape \(27, 40, 24\), in which the "):
        settled(Tall(), frame_stack=9)


def test_colours_become_channels_first_and_the_newest_frame_is_last():
    env, bare = settled(Pictures(), frame_stack=2), Pictures()
    assert env.observation_space.shape == (6, 20, 24)
    first, second = bare.reset(seed=1)[0], bare.step(0)[0]
    obs = env.reset(seed=1)[0]
    assert np.array_equal(obs, np.concatenate([first.transpose(2, 0, 1)] * 2))
    after = env.step(0)[0]
    assert np.array_equal(after, np.concatenate([first.transpose(2, 0, 1), second.transpose(2, 0, 1)]))
    assert np.array_equal(obs[3:], first.transpose(2, 0, 1)), "an observation that was returned does not change"


@pytest.mark.parametrize("kind", [Robot, Pair])
@pytest.mark.parametrize("values", [{"grayscale": True}, {"resize": 12}, {"frame_stack": 2}, {
    "frame_skip": 2, "grayscale": True, "resize": 12, "frame_stack": 3}])
def test_the_only_image_of_a_structure_is_changed_as_an_image_alone(kind, values):
    """Other parts are as without the settings of images. What the environment keeps does not change."""
    mine, image, whole = settled(kind(), **values), settled(Pictures(), **values), kind()
    whole = settled(whole, frame_skip=values.get("frame_skip", 1))
    assert kind.parts(mine.observation_space) == (image.observation_space, kind.parts(kind.observation_space)[1])
    assert [path for path, _ in leaves(mine.observation_space)] == [path for path, _ in leaves(kind.observation_space)]
    for action in (None, 0, 1, 1):
        answers = [env.reset(seed=3) if action is None else env.step(action) for env in (mine, image, whole)]
        picture, others = kind.parts(answers[0][0])
        assert np.array_equal(picture, answers[1][0]) and answers[0][1:] == answers[1][1:]
        assert all(map(np.array_equal, others, kind.parts(answers[2][0])[1]))
        assert mine.observation_space.contains(answers[0][0])
        assert kind.parts(mine.unwrapped.kept)[0].shape == (20, 24, 3)


def test_an_environment_with_one_image_among_others_trains_as_its_parts():
    """Rows are those of the changed space, masks stay, and the state of the stack is saved."""
    envs = GymEnvs(lambda: settled(Robot(), grayscale=True, resize=12, frame_stack=3), [1, 2], "Robot")
    step = envs.reset()
    layout = obs_layout(envs.observation_space)
    assert {part.name: (part.kind, part.shape) for part in layout.parts} == {
        "observation['sensors']['front']": ("image", (3, 12, 12)), "observation['sensors']['rear']": ("discrete", (1,)),
        "observation['time']": ("vector", (1,))}
    assert step.obs.shape == (2, layout.size) and step.mask.tolist() == [[True, False]] * 2
    assert envs.step(np.zeros(2, int)).mask.tolist() == [[True, True]] * 2
    assert envs.keeps_state


class Stereo(Robot):
    observation_space = spaces.Dict({"left": Pictures.observation_space, "right": Pictures.observation_space})


class Deaf(Robot):
    def seen(self, picture):
        return {"sensors": {"rear": 0}, "time": np.zeros(1, np.float32), "action_mask": np.ones(2, np.int8)}


@pytest.mark.parametrize(("kind", "values", "words"), [
    (Stereo, {"grayscale": True, "resize": 12}, r"grayscale=True and resize=12 can change one image, and Pictures has 2: "
     r"observation\['left'\] and observation\['right'\]\. Change them in a wrapper"),
    (Robot, {"resize": 7}, r"resize=7 makes observation\['sensors'\]\['front'\] of Pictures too small .* at least 8x8")])
def test_a_structure_without_one_image_for_a_setting_is_refused(kind, values, words):
    with pytest.raises(UsageError, match=words):
        settled(kind(), **values)
    assert settled(kind(), frame_skip=2).observation_space == kind.observation_space


def test_an_observation_without_the_image_is_a_fault_of_the_environment():
    envs = GymEnvs(lambda: settled(Deaf(), frame_stack=2), [1], "Deaf")
    with pytest.raises(EnvError, match=r"step 0: observation\['sensors'\] has no key 'front' \(at reset\)"):
        envs.reset()


@pytest.mark.parametrize(("shape", "high", "stacked", "frames"), [
    ((84, 84), 255, (4, 84, 84), (4, 1)), ((84, 84, 1), 255, (4, 84, 84), (4, 1)), ((64, 60, 3), 1.0, (12, 64, 60), (4, 3)),
    ((64, 64, 12), 255, (48, 64, 64), (4, 12)), ((3, 64, 60), 255, (12, 64, 60), (4, 3)), ((7, 7, 3), 255, (12, 7, 7), (4, 3)),
    ((3, 2), 1.0, (12, 2), None), ((9, 9, 3), 9.0, (36, 9, 3), None)])
def test_what_counts_as_an_image_is_stacked_along_its_channels(shape, high, stacked, frames):
    """Every kind that docs/add-an-environment.md names, channel by channel; other arrays along their first axis."""
    class Kind(Pictures):
        observation_space = spaces.Box(0, high, shape, np.float32 if isinstance(high, float) else np.uint8)

        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            return self.observe(), {}

        def observe(self):
            return (self.np_random.uniform(0, high, shape)).astype(self.observation_space.dtype)

        def step(self, action):
            return self.observe(), 0.0, False, False, {}

    bare = Kind()
    seen = [bare.reset(seed=5)[0], bare.step(0)[0]]
    one_by_one = [np.moveaxis(x, -1, 0) if x.ndim == 3 and x.shape[2] < x.shape[0] and frames
                  else x[None] if x.ndim == 2 and frames else x for x in seen]
    envs = GymEnvs(lambda: settled(Kind(), frame_stack=4), [5], "Kind")
    begin = envs.reset().obs.copy()
    assert envs.obs_shape == stacked and envs.frames == (frames and FrameStack(*frames))
    assert np.array_equal(begin[0], np.concatenate([one_by_one[0]] * 4))
    assert np.array_equal(envs.step(np.zeros(1, int)).obs[0], np.concatenate([one_by_one[0]] * 3 + one_by_one[1:]))


def test_actions_are_repeated_until_the_episode_ends():
    """Rewards 1+2+3+4, 5+6+7+8, 9; the last info is returned."""
    env = settled(Pictures(), frame_skip=4)
    env.reset(seed=1)
    steps = [env.step(1) for _ in range(3)]
    assert [step[1] for step in steps] == [10.0, 26.0, 9.0]
    assert [step[2] for step in steps] == [False, False, True] and steps[1][4] == {"t": 8}


@pytest.mark.parametrize("kind", [lambda x: np.array([x]), lambda x: [x], np.float32, int, lambda x: np.uint8(100 * x)])
def test_rewards_of_repeated_actions_may_be_arrays_of_one_number(kind):
    """As without repetition; and sums of small integers do not overflow."""
    class Rewarding(Pictures):
        def step(self, action):
            obs, _, *rest = super().step(action)
            return obs, kind(1.0), *rest

    envs = GymEnvs(lambda: settled(Rewarding(), frame_skip=4), [1], "Rewarding")
    envs.reset()
    assert envs.step(np.zeros(1, int)).reward.tolist() == [4 * float(np.ravel(kind(1.0))[0])]


@pytest.mark.parametrize("reward", [None, "1", {}])
def test_what_is_no_reward_is_named_where_actions_are_repeated_too(reward):
    class Rewarding(Pictures):
        def step(self, action):
            obs, _, *rest = super().step(action)
            return obs, reward, *rest

    envs = GymEnvs(lambda: settled(Rewarding(), frame_skip=4), [1], "Rewarding")
    envs.reset()
    with pytest.raises(EnvError, match=f"step 1: reward is {reward!r}; it must be a number"):
        envs.step(np.zeros(1, int))


def test_repeated_actions_are_shown_at_the_speed_of_the_environment():
    """There is one picture per step, as with Atari's frame skip."""
    class Filmed(Pictures):
        metadata = {"render_modes": ["rgb_array"], "render_fps": 50}

    for settings, fps in (({}, 50.0), ({"frame_skip": 4}, 12.5), ({"frame_skip": 4, "frame_stack": 2}, 12.5)):
        assert GymEnvs(lambda values=settings: settled(Filmed(), **values), [1], "Filmed").render_fps == fps
    assert GymEnvs(lambda: settled(Pictures(), frame_skip=4), [1], "Pictures").render_fps is None


@pytest.mark.parametrize("space", [spaces.Box(-1, 1, (2,)), spaces.Dict({"x": spaces.Box(-1, 1, (2,))})])
def test_repeated_actions_are_equal(space):
    """Also in an environment that scales its action in place."""
    class Scaling(Pictures):
        action_space, taken = space, []

        def step(self, action):
            action = action["x"] if isinstance(action, dict) else action
            self.taken.append(action.tolist())
            action *= 2
            return super().step(action)

    env, action = settled(Scaling(), frame_skip=3), np.float32([0.25, -0.5])
    env.reset(seed=1)
    env.step({"x": action} if isinstance(space, spaces.Dict) else action)
    assert Scaling.taken == [[0.25, -0.5]] * 3


def test_vectors_are_stacked_along_their_axis():
    env = settled(gym.make("CartPole-v1"), frame_stack=2)
    obs, _ = env.reset(seed=1)
    after = env.step(0)[0]
    assert env.observation_space.shape == (8,) and np.array_equal(after[:4], obs[4:])


def test_the_state_of_stacks_is_saved():
    """A run of images without a simulator resumes exactly."""
    envs = GymEnvs(lambda: settled(Pictures(), grayscale=True, resize=12, frame_stack=3, frame_skip=2), [1, 2], "Pictures")
    envs.reset()
    assert envs.keeps_state and envs.obs_shape == (3, 12, 12)


@pytest.mark.parametrize(("values", "env", "words"), [
    ({"resize": 8}, "CartPole-v1", "resize needs uint8 images"), ({"grayscale": True}, "Pendulum-v1", "grayscale needs"),
    ({"frame_stack": 2}, "FrozenLake-v1", "frame_stack=2 stacks arrays.*, or flatten observations without images")])
def test_settings_that_do_not_suit_are_refused(values, env, words):
    with pytest.raises(UsageError, match=words):
        settled(gym.make(env), **values)


class Flags(Pictures):
    observation_space = spaces.Box(0, 1, (16, 12, 3), np.uint8)


class FlagsInside(Robot):
    observation_space = spaces.Dict({"camera": spaces.Box(5, 255, (16, 12, 3), np.uint8)})


@pytest.mark.parametrize(("kind", "image"), [(Flags, "Pictures"), (FlagsInside, r"observation\['camera'\] of Pictures")])
@pytest.mark.parametrize("values", [{"grayscale": True}, {"resize": 8}], ids=str)
def test_images_with_other_bounds_are_refused_where_gymnasium_does_not_convert_them(kind, image, values):
    """Its wrappers raise a ValueError. Stacks take all images."""
    name, = values
    with pytest.raises(UsageError, match=f"^{name} needs images with the bounds 0 and 255, and {image} has the observation "
                       rf"space Box.*Declare these bounds, or leave --{name} out"):
        settled(kind(), **values)
    assert settled(kind(), frame_stack=2)


@pytest.mark.parametrize(("words", "name"), [
    (["ppo_atari", "--env-id", "ALE/Breakout-v5", "--frame-stack", "0"], "frame_stack"), (["--env-id", "CarRacing-v3", "--preset", "none", "--resize", "0"], "resize")])
def test_settings_out_of_range_are_refused_before_anything_is_made_with_them(words, name, tmp_path, capsys, recwarn):
    """A network of no channels gave a warning of torch, and a picture without pixels an exception of Gymnasium."""
    assert main(["train", *words, "--run-dir", str(tmp_path / "run")]) == 2
    assert capsys.readouterr().err == f"proximo: {name}=0 must be between 1 and 10000\n" and not recwarn.list


def test_car_racing_trains_without_a_variant(tmp_path, capsys):
    """The choice names a network for images and leaves pixels alone; flags of the user have precedence."""
    pytest.importorskip("Box2D")
    words = ["train", "--env-id", "CarRacing-v3", "--preset", "none", "--grayscale", "--resize", "36", "--frame-stack", "2",
             "--num-steps", "8", "--num-minibatches", "1", "--update-epochs", "1", "--total-timesteps", "8", "--logger", "none"]
    assert main([*words, "--run-dir", str(tmp_path / "run")]) == 0
    said = capsys.readouterr().err
    assert "CarRacing-v3 returns images: using model=cnn, norm_obs=False." in said
    recorded = json.loads((tmp_path / "run" / "config.json").read_text())["config"]
    assert (recorded["model"], recorded["norm_obs"]) == ("cnn", False)
    assert main([*words, "--model", "mlp", "--run-dir", str(tmp_path / "flat")]) == 0
    assert "returns images" not in capsys.readouterr().err
    assert main([*words, "--activation", "gelu", "--run-dir", str(tmp_path / "wrong")]) == 2
    assert "--model cnn needs images" not in capsys.readouterr().err, "the only problem is the activation"


@pytest.mark.parametrize("workers", [0, 1])
def test_car_racing(workers):
    """The settings of the common recipe for CarRacing: 96x96x3 becomes four gray frames of 64x64."""
    pytest.importorskip("Box2D")
    from proximo.envs.mujoco import make_mujoco

    envs = make_mujoco(Config(env_id="CarRacing-v3", frame_skip=2, grayscale=True, resize=64, frame_stack=4,
                              env_workers=workers), [1])
    step = envs.reset()
    assert step.obs.shape == (1, 4, 64, 64) and step.obs.dtype == np.uint8
    assert envs.step(np.zeros((1, 3), np.float32)).obs.shape == (1, 4, 64, 64)
    envs.close()
