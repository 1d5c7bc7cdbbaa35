"""The state of environments that hold simulations of MuJoCo in attributes of their own, with small models."""

import os
import signal
import subprocess
import sys
from copy import deepcopy

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import proximo
from proximo.envs.gym_loop import GymEnvs
from proximo.envs.state.check import same_steps
from proximo.envs.state.env_state import get_env_state
from proximo.runs.folder.checkpoint import checkpoints, load_tree, save_tree
from tests.support.runs import same_weights

mujoco = pytest.importorskip("mujoco")

ARM = """<mujoco><option timestep="0.01"/><worldbody><geom type="plane" size="2 2 .1"/>
<body name="arm" pos="0 0 .5"><joint name="{joint}" axis="0 1 0" damping=".1"/><geom type="{geom}" size=".04 .2" mass="1"/>
<site name="tip" pos="0 0 .2"/><body pos="0 0 .2"><joint axis="1 0 0"/><geom size=".02 .1" type="capsule" mass=".3"/></body></body>
<body pos="{ball} 0 .3"><freejoint/><geom size=".1"/></body></worldbody>
<actuator><motor joint="{joint}" gear="2"/></actuator><sensor><framelinvel objtype="site" objname="tip"/></sensor></mujoco>"""


def arm(joint="elbow", ball=0.4, geom="capsule"):
    """An arm that hits a ball."""
    return mujoco.MjModel.from_xml_string(ARM.format(joint=joint, ball=ball, geom=geom))


class Robot(gymnasium.Env):
    """Rewards read what is half a step behind the state. Episodes have 60 steps."""

    observation_space, action_space = spaces.Box(-np.inf, np.inf, (18,)), spaces.Box(-1, 1, (1,))

    def __init__(self):
        self.body = arm()
        self.now = mujoco.MjData(self.body)

    def simulation(self):
        return self.body, self.now

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        model, data = self.simulation()
        mujoco.mj_resetData(model, data)
        data.qpos[:2] = self.np_random.uniform(-1, 1, data.qpos[:2].shape)
        mujoco.mj_forward(model, data)
        self.left = 60
        return self.observe(), {}

    def step(self, action):
        model, data = self.simulation()
        data.ctrl[:] = self.control(action)
        mujoco.mj_step(model, data, 2)
        self.left -= 1
        return self.observe(), self.reward(), False, self.left == 0, {}

    def control(self, action):
        return action

    def observe(self):
        _, data = self.simulation()
        return np.concatenate([data.qpos, data.qvel, [data.time]], dtype=np.float32)

    def reward(self):
        _, data = self.simulation()
        return float(data.site_xpos[0, 0] + data.sensordata[2] + data.ncon)


class Holder:
    """What a program makes objects of."""

    def __init__(self, **attributes):
        vars(self).update(attributes)


class InObject(Robot):
    """A simulation that is an object, which counts, and has the model under a second name."""

    def __init__(self):
        model = arm()
        self.sim = Holder(model=model, data=mujoco.MjData(model), counts={"steps": 0})
        self.model = model
        self.kind = mujoco.mjtObj.mjOBJ_SITE

    def simulation(self):
        return self.model, self.sim.data

    def control(self, action):
        self.sim.counts["steps"] += 1
        return action * np.cos(self.sim.counts["steps"])


class Deeper(InObject):
    """The same in an object of an object, which knows the environment."""

    def __init__(self):
        super().__init__()
        self.robot = Holder(sim=self.sim, env=self)
        del self.sim

    def __getattr__(self, name):
        if name == "sim" and "robot" in vars(self):
            return self.robot.sim
        raise AttributeError(name)


class Two(Robot):
    """Two simulations of one model, of which one runs in an episode, and a simulation of another model."""

    def __init__(self):
        super().__init__()
        other = arm(joint="hip", ball=0.5)
        self.all = [(self.body, self.now), (self.body, mujoco.MjData(self.body)), (other, mujoco.MjData(other))]

    def reset(self, *, seed=None, options=None):
        gymnasium.Env.reset(self, seed=seed)
        self.body, self.now = self.all[self.np_random.integers(3)]
        return super().reset()


class Heavier(Robot):
    """Draws a mass and the wind of each episode."""

    def reset(self, *, seed=None, options=None):
        gymnasium.Env.reset(self, seed=seed)
        self.body.body_mass[1:] = self.np_random.uniform(0.5, 2, 3)
        self.body.opt.wind[:] = self.np_random.uniform(0, 1, 3)
        return super().reset()


class Views(Robot):
    """Holds parts of the memory of MuJoCo."""

    def __init__(self):
        super().__init__()
        self.position, self.one_speed = self.now.qpos, self.now.joint("elbow").qvel
        self.limits, self.backwards = self.body.actuator_ctrlrange, [self.now.ctrl, self.now.qvel[::-2]]

    def control(self, action):
        return action - 0.1 * self.position[0] - self.one_speed - self.backwards[1][-1]


class Torques(Robot):
    """Computes its forces from the mass matrix and a Jacobian, as they are after the last step."""

    def control(self, action):
        matrix, jacobian = np.zeros((8, 8)), np.zeros((3, 8))
        mujoco.mj_fullM(self.body, self.now, matrix)
        mujoco.mj_jacSite(self.body, self.now, jacobian, None, 0)
        return np.clip(action + 30 * matrix[0, 0] + jacobian[0, 0] - self.now.qfrc_bias[0], -99, 99)


class Inside(Robot):
    """Plays in an environment of Gymnasium, which it does not wrap."""

    def __init__(self):
        self.inner = gymnasium.make("InvertedPendulum-v5")

    def simulation(self):
        return self.inner.unwrapped.model, self.inner.unwrapped.data

    def observe(self):
        return np.pad(super().observe(), (0, 13))

    def reward(self):
        return float(self.simulation()[1].cvel[1, 1])


class Drawn(Robot):
    """Has a camera, whose pictures are rewards of every tenth step."""

    def __init__(self):
        super().__init__()
        self.camera, self.look = mujoco.Renderer(self.body, 16, 16), mujoco.MjvOption()

    def reward(self):
        if self.left % 10:
            return 0.0
        self.camera.update_scene(self.now, scene_option=self.look)
        return float(self.camera.render().mean())

    def close(self):
        self.camera.close()


class Alone(Robot):
    """Holds no model."""

    def __init__(self):
        self.data = mujoco.MjData(arm())

    def simulation(self):
        return self.data.model, self.data


class Counting(gymnasium.Wrapper):
    """Reads the simulation from outside, and has attributes of the same names."""

    def __init__(self, env):
        super().__init__(env)
        self.now, self.body = env.now, 0

    def step(self, action):
        self.body += 1
        observation, reward, *rest = self.env.step(action)
        return observation, reward + self.now.qvel[0] * np.sin(self.body), *rest


ALL = [Robot, InObject, Deeper, Two, Heavier, Views, Torques, Inside, Drawn, Alone]


def wrapped():
    return Counting(Heavier())


FIRST = Heavier()


def copied():
    return deepcopy(FIRST)


def rows(make, seeds=(1, 2)):
    return GymEnvs(make, seeds, make.__name__)


def actions(steps, seed=0, count=2):
    return np.random.default_rng(seed).normal(0, 1, (steps, count, 1)).astype(np.float32)


@pytest.mark.parametrize("make", [*ALL, wrapped, copied])
def test_others_continue_from_a_file(make, tmp_path):
    """Bit for bit, over ends of episodes, and with environments that were played before."""
    number = 1 if make is Drawn else 2  # a camera takes a second to make
    try:
        envs, other = rows(make, (1, 2)[:number]), rows(make, (3, 4)[:number])
    except Exception as error:
        pytest.skip(f"MuJoCo cannot draw here: {error}") if make is Drawn else pytest.fail(str(error))
    envs.reset(), other.reset()
    assert envs.keeps_state
    for action in actions(75, 0, number):
        envs.step(action)
    for action in actions(20, 1, number):
        other.step(action)
    save_tree(tmp_path / "saved", {"state": envs.state()})
    other.load(load_tree(tmp_path / "saved")["state"])
    for action in actions(150, 2, number):
        assert same_steps(envs.step(action), other.step(action))
    envs.close(), other.close()


def test_names_of_one_object_stay_names_of_one_object():
    """Also parts of its memory: what is written through one is read through the other."""
    envs, other = rows(Two), rows(Two, (3, 4))
    envs.reset(), other.reset()
    other.load(envs.snapshot())
    for one, now in zip(envs.call("get_wrapper_attr", "now"), other.call("get_wrapper_attr", "now"), strict=True):
        place = [[each is held for _, each in all_] for all_, held in zip(
            envs.call("get_wrapper_attr", "all") + other.call("get_wrapper_attr", "all"),
            envs.call("get_wrapper_attr", "now") + other.call("get_wrapper_attr", "now"), strict=True)]
        assert place[:2] == place[2:] and sum(map(sum, place)) == 4 and one is not now

    views = rows(Views)
    views.reset()
    views.load(views.snapshot())
    env = views.call("get_wrapper_attr", "unwrapped")[0]
    env.position[0], env.backwards[0][:], env.limits[:] = 0.5, 0.25, [[-3, 3]]
    assert env.now.qpos[0] == 0.5 and env.now.ctrl[0] == 0.25 and env.body.actuator_ctrlrange[0, 1] == 3


class Sleeping(Robot):
    """MuJoCo does not save which bodies sleep."""

    def __init__(self):
        self.body = mujoco.MjModel.from_xml_string(ARM.format(joint="elbow", ball=0.4, geom="capsule").replace(
            'timestep="0.01"/>', 'timestep="0.01"><flag sleep="enable"/></option>'))
        self.now = mujoco.MjData(self.body)


class Edited(Robot):
    """Its next model may depend on what it has changed in the specification."""

    def __init__(self):
        super().__init__()
        self.plan = mujoco.MjSpec()


class Hidden(Robot):
    """The simulation is not in an attribute."""

    def __init__(self):
        self.body = arm()
        DATA[id(self)] = mujoco.MjData(self.body)

    def simulation(self):
        return self.body, DATA[id(self)]


DATA = {}


class Touching(Robot):
    """Reads contacts, as they were before the last step moved the bodies."""

    def control(self, action):
        return action + 100 * sum(contact.dist for contact in self.now.contact)


class Groups(Robot):
    """Changes what no step shows, differently in each environment."""

    made = 0

    def __init__(self):
        super().__init__()
        Groups.made += 1
        self.body.geom_group[1] = Groups.made % 5


class Shapes(Groups):
    """Makes models of another shape but the same sizes."""

    def reset(self, *, seed=None, options=None):
        self.body = arm(geom="capsule" if self.body.geom_group[1] % 2 else "cylinder")
        self.now = mujoco.MjData(self.body)
        return super().reset(seed=seed)


class Helped(gymnasium.Env):
    """An object of Python in an environment without a simulation."""

    observation_space, action_space = spaces.Box(-1, 1, (1,)), spaces.Box(-1, 1, (1,))

    def __init__(self):
        self.body, self.helper = arm(), Holder(steps=0)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(1, np.float32), {}

    def step(self, action):
        return np.zeros(1, np.float32), 0.0, False, False, {}


@pytest.mark.parametrize(("make", "cause"), [
    (Sleeping, "'body' holds a value of the type MjModel"), (Edited, "'plan' holds a value of the type MjSpec"),
    (Hidden, "'body' holds a value of the type MjModel"), (Touching, ""), (Groups, ""), (Shapes, ""),
    (Helped, "'body' holds a value of the type MjModel")])
def test_what_cannot_continue_exactly_is_not_saved(make, cause, capsys):
    envs = rows(make, (1,))
    envs.reset()
    assert not envs.keeps_state and envs.state() is None and cause in capsys.readouterr().err


def test_an_attribute_of_an_object_is_named():
    env = InObject()
    env.reset(seed=1)
    env.sim.found = {1, 2}
    with pytest.raises(Exception, match="its attribute 'Holder.found' holds a value of the type set"):
        get_env_state(env)


PROGRAM = """
import os, signal, sys, proximo
from tests.envs.state import test_mujoco as module

def die(it):
    if it.iteration == 8:
        os.kill(os.getpid(), signal.SIGKILL)

proximo.train(env=module.Heavier, run_dir=sys.argv[1], callbacks=[die], checkpoint_every=3, **module.FIELDS)
"""
FIELDS = {"num_envs": 2, "num_steps": 16, "num_minibatches": 2, "total_timesteps": 320, "hidden_sizes": (8, 8),
          "logger": "none"}


def test_a_run_that_was_killed_ends_with_the_same_weights(tmp_path):
    """The other run has no checkpoint but the last one: neither begins its environments again."""
    proximo.train(env=Heavier, run_dir=tmp_path / "whole", checkpoint_every=99, **FIELDS)
    done = subprocess.run([sys.executable, "-c", PROGRAM, tmp_path / "broken"], capture_output=True, check=False,
                          env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)})
    assert done.returncode == -signal.SIGKILL, done.stderr
    state = load_tree(checkpoints(tmp_path / "broken")[-1])["state"]
    assert state["iteration"] < 8 and state["envs"]["envs"]["1"]["objects"].keys() == {"0", "1"}
    proximo.resume(tmp_path / "broken", env=Heavier)
    assert same_weights(tmp_path / "whole", tmp_path / "broken")
