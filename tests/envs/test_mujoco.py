"""MuJoCo and dm_control equal Gymnasium's own environments, and continue exactly from a saved state."""

import os
import subprocess
import sys
from dataclasses import replace

import gymnasium
import numpy as np
import pytest

import proximo
from proximo.envs.calls import call_envs
from proximo.envs.gym import make_gym
from proximo.envs.gym_source import EnvSource
from proximo.envs.mujoco import make_mujoco, make_mujoco_rows, pass_on_warnings
from proximo.envs.render import use_egl_when_headless
from proximo.envs.state.check import same_steps
from proximo.errors import UsageError, warn_once
from proximo.variants import Continuous
from tests.support.normalized import Normalized
from tests.support.runs import same_weights

mujoco = pytest.importorskip("mujoco")
pytestmark = pytest.mark.filterwarnings("ignore")

RAW = Continuous(norm_obs=False, norm_reward=False)


def actions(envs, steps, seed=0):
    return np.random.default_rng(seed).normal(0, 1, (steps, envs.num_envs, *envs.action_space.shape)).astype(np.float32)


def test_equals_gymnasium_with_clipped_actions():
    """Numbers are those of Gymnasium as float32, with actions clipped to the bounds (detail 27)."""
    envs = make_mujoco(replace(RAW, env_id="Hopper-v4"), [5])
    one = gymnasium.make("Hopper-v4")
    obs, _ = one.reset(seed=5)
    assert np.array_equal(envs.reset().obs[0], obs.astype(np.float32))
    ended = 0
    for action in 3 * actions(envs, 120):
        obs, reward, terminated, truncated, _ = one.step(np.clip(action[0], -1, 1))
        step = envs.step(action)
        assert step.reward[0] == np.float32(reward)
        assert (step.terminated[0], step.truncated[0]) == (terminated, truncated)
        assert np.array_equal((step.final_obs if terminated else step.obs)[0], obs.astype(np.float32))
        if terminated:
            ended += 1
            one.reset()
    assert ended > 2


def test_a_warning_of_mujoco_is_one_message(tmp_path, monkeypatch, capfd, caplog):
    """MuJoCo prints it for each environment, and writes a file into the current folder.

    A function for warnings that is set already stays, as that of dm_control where another test has imported it.
    """
    monkeypatch.chdir(tmp_path)
    warn_once.cache_clear()
    before = mujoco.get_mju_user_warning()
    mujoco.set_mju_user_warning(None)
    try:
        make_mujoco_rows(EnvSource("HalfCheetah-v4"), "same-step", [1, 2]).close()
    finally:
        mujoco.set_mju_user_warning(before)
    (message,) = (record.getMessage() for record in caplog.records)
    assert message.startswith("MuJoCo: compiler attribute 'settotalmass' is deprecated")
    assert "".join(capfd.readouterr()) in ("", f"proximo: {message}\n") and not list(tmp_path.iterdir())


def test_a_simulation_that_becomes_unstable_again_is_no_other_message(caplog):
    """MuJoCo ends the warning with the time of the simulation, which is another one in each episode."""
    warn_once.cache_clear()
    before = mujoco.get_mju_user_warning()
    mujoco.set_mju_user_warning(None)
    try:
        pass_on_warnings("HalfCheetah-v5")
        env = gymnasium.make("HalfCheetah-v5")
        for steps in (1, 2, 3):
            env.reset(seed=steps)
            for _ in range(steps):
                env.step(np.zeros(6, np.float32))
            env.unwrapped.data.qvel[:] = 1e12
            env.step(np.zeros(6, np.float32))
        env.close()
    finally:
        mujoco.set_mju_user_warning(before)
    messages = [record.getMessage() for record in caplog.records if "unstable" in record.getMessage()]
    assert messages == ["MuJoCo: Nan, Inf or huge value in QVEL at DOF 0. The simulation is unstable."]


@pytest.mark.parametrize("env_id", ["HalfCheetah-v4", "Ant-v4", "Ant-v5", "Humanoid-v4", "Reacher-v5"])
def test_state_continues_exactly(env_id):
    """Other environments that load the state repeat the steps bit for bit, over ends and new episodes.

    The rewards of Ant and Humanoid depend on positions that are half a step behind the state.
    """
    envs, other = (make_mujoco_rows(EnvSource(env_id), "same-step", seeds) for seeds in ([1, 2], [3, 4]))
    plan = actions(envs, 190)
    envs.reset(), other.reset()
    for action in plan[:40]:
        envs.step(action)
    state = envs.state()
    assert state is not None
    other.load(state)
    for action in plan[40:]:
        assert same_steps(envs.step(action), other.step(action))


def test_other_variants_save_the_state_of_mujoco(tmp_path):
    """They made such environments again every 50 iterations, and check-env said that the state can be saved."""
    def make_env():
        return gymnasium.wrappers.ClipAction(gymnasium.make("Hopper-v4"))

    def stop(it):
        if it.iteration == 2:
            raise proximo.StopTraining

    fields = {"num_envs": 4, "num_steps": 32, "logger": "none", "total_timesteps": 512}
    envs = make_gym(proximo.Config(env_id="Hopper-v4", num_envs=2), [1, 2])
    assert envs.keeps_state
    envs.close()
    proximo.train("ppo", env=make_env, run_dir=tmp_path / "whole", **fields)
    proximo.train("ppo", env=make_env, run_dir=tmp_path / "halves", callbacks=[stop], **fields)
    proximo.resume(tmp_path / "halves", env=make_env)
    assert same_weights(tmp_path / "whole", tmp_path / "halves")


def test_normalised_with_one_statistic():
    """With the defaults of the variant, observations are clipped."""
    cfg = Continuous(env_id="InvertedPendulum-v4")
    envs = Normalized(make_mujoco(cfg, [1, 2]), cfg)
    envs.reset()
    for action in actions(envs, 30):
        step = envs.step(action)
    assert envs.statistics.obs.mean.shape == envs.obs_shape
    assert abs(envs.statistics.obs.count - 62) < 1
    assert np.abs(step.obs).max() <= 10


def test_dm_control():
    """Observations are flat float32, the time limit is 1000 steps, the state cannot be saved, it can be drawn."""
    pytest.importorskip("shimmy")
    pytest.importorskip("dm_control")
    envs = make_mujoco(replace(RAW, env_id="dm_control/cartpole-balance-v0"), [1])
    start = envs.reset()
    assert start.obs.shape == (1, 5)
    assert start.obs.dtype == np.float32
    for action in actions(envs, 1000):
        step = envs.step(action)
    assert step.truncated[0]
    assert not step.terminated[0]
    assert step.episode.length[0] == 1000
    assert envs.state() is None
    assert envs.render().std() > 1
    assert envs.render_fps == 1000 / 10    # an episode of dm_control's cartpole is ten seconds long
    envs.close()


def test_lqr_never_ends():
    """An environment without a time limit and with nearly unbounded actions works."""
    pytest.importorskip("shimmy")
    pytest.importorskip("dm_control")
    envs = make_mujoco(replace(RAW, env_id="dm_control/lqr-lqr_2_1-v0"), [1])
    envs.reset()
    for action in actions(envs, 1100):
        step = envs.step(action)
        assert not step.terminated[0]
        assert not step.truncated[0]
    assert np.isfinite(step.obs).all()


def test_pusher_v4_runs_on_envpool_or_offers_its_successor(capsys):
    pytest.importorskip("envpool_assets")
    envs = make_mujoco(replace(RAW, env_id="Pusher-v4"), [1, 2])
    assert envs.reset().obs.shape == (2, 23)
    assert "Pusher-v4 runs on EnvPool" in capsys.readouterr().err
    envs.step(actions(envs, 1)[0])
    envs.close()
    with pytest.raises(UsageError, match="Use Pusher-v5"):
        make_mujoco(replace(RAW, env_id="Pusher-v4", engine="gym"), [1])


def test_an_unknown_id_is_an_error():
    with pytest.raises(UsageError, match="HalfCheetah-v"):
        make_mujoco(replace(RAW, env_id="HalfChetah-v4"), [1])


def test_a_missing_package_is_named_with_its_extra(tmp_path):
    """In another process, because the modules that Gymnasium imports keep what they have found."""
    program = ("import sys; sys.modules['mujoco'] = None; from proximo.cli.main import main; "
               "sys.exit(main(['train', 'ppo_continuous_action', '--env-id', 'Hopper-v4', '--engine', 'gym']))")
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True,
                          env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})
    assert done.returncode == 2 and 'Install it: pip install "proximo[mujoco]"\n' in done.stderr
    assert "Traceback" not in done.stderr


def test_pictures_without_a_screen(monkeypatch):
    """EGL is chosen if no renderer was chosen and there is no screen; the picture is not black."""
    monkeypatch.delenv("MUJOCO_GL", raising=False)
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    monkeypatch.setenv("DISPLAY", ":0")
    use_egl_when_headless()
    assert "MUJOCO_GL" not in os.environ
    monkeypatch.delenv("DISPLAY")
    use_egl_when_headless()
    assert os.environ["MUJOCO_GL"] == "egl"
    envs = make_mujoco(replace(RAW, env_id="HalfCheetah-v4"), [1])
    envs.reset()
    assert envs.render().std() > 1
    envs.close()


def test_misspelt_tasks_are_named_as_they_were_typed():
    """The message does not have the prefix under which shimmy registers them."""
    pytest.importorskip("shimmy")
    pytest.importorskip("dm_control")
    with pytest.raises(UsageError, match="^env_id=dm_control/walker-wlk-v0 is unknown. Did you mean dm_control/walk"):
        make_mujoco(replace(RAW, env_id="dm_control/walker-wlk-v0"), [1])


def test_a_model_that_a_program_has_changed_is_part_of_the_state():
    """Masses, gravity and an option, as of a curriculum: other environments continue with them, bit for bit."""
    envs, others = (make_mujoco(replace(RAW, env_id="Hopper-v4"), seeds) for seeds in ([1, 2], [3, 4]))
    envs.reset(), others.reset()
    before = float(call_envs(envs, "get_wrapper_attr", "model")[0].opt.gravity[2])
    for model in call_envs(envs, "get_wrapper_attr", "model"):
        model.opt.gravity[2], model.opt.viscosity, model.opt.iterations = before / 2, 0.1, 7
        model.body_mass *= 2
    envs.step(actions(envs, 1)[0])
    others.load(envs.state())
    assert [float(model.opt.gravity[2]) for model in call_envs(others, "get_wrapper_attr", "model")] == [before / 2] * 2
    for action in actions(envs, 60, seed=1):
        assert same_steps(envs.step(action), others.step(action))


def test_models_take_one_array_of_a_checkpoint_each(caplog):
    """170 arrays for each of 64 environments took four times the time and space of everything else. A model with other
    arrays, as of another version of MuJoCo, is not written to."""
    envs = make_mujoco(replace(RAW, env_id="Hopper-v4"), [1])
    envs.reset()
    state, (model,) = envs.state(), call_envs(envs, "get_wrapper_attr", "model")
    kept = state["envs"]["0"]["objects"]["0"]
    assert [name for name, value in kept.items() if isinstance(value, np.ndarray)] == ["numbers"] and len(kept) == 4
    model.body_mass *= 2
    changed = model.body_mass.copy()
    kept["layout"] += 1
    envs.load(state)
    assert (model.body_mass == changed).all() and "of another model or version of MuJoCo" in caplog.text


DERIVED = ("xpos", "xquat", "xmat", "xipos", "ximat", "geom_xpos", "geom_xmat", "site_xpos", "site_xmat", "subtree_com",
           "cinert", "cvel", "cacc", "cfrc_int", "cfrc_ext", "qfrc_actuator", "actuator_force", "sensordata")


@pytest.mark.parametrize("has_model", [True, False])
def test_a_state_of_version_01_is_loaded(has_model):
    """It had no masses first, then those of the model beside the attributes; derived arrays by name."""
    envs, others = (make_mujoco(replace(RAW, env_id="Ant-v5"), [seed]) for seed in (1, 2))
    envs.reset(), others.reset()
    (env,) = call_envs(envs, "get_wrapper_attr", "unwrapped")
    if has_model:
        env.model.body_mass *= 2
    for action in actions(envs, 30):
        envs.step(action)
    state = envs.state()
    now = state["envs"]["0"]
    physics = np.empty(mujoco.mj_stateSize(env.model, mujoco.mjtState.mjSTATE_INTEGRATION))
    mujoco.mj_getState(env.model, env.data, physics, mujoco.mjtState.mjSTATE_INTEGRATION)
    then = {"env": {depth: {name: code for name, code in one.items() if name not in ("model", "data")}
                    for depth, one in now.items() if depth != "objects"},
            "physics": physics, "derived": {name: getattr(env.data, name).copy() for name in DERIVED}}
    if has_model:
        then["model"] = {name: now["objects"]["0"][name] for name in ("layout", "numbers")}
    others.load(state | {"envs": {"0": then}})
    for action in actions(envs, 60, seed=1):
        assert same_steps(envs.step(action), others.step(action))
