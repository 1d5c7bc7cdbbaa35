"""Worker processes equal one process, and report workers that raise, die, stop or hang."""

import errno
import itertools
import multiprocessing
import os
import queue
import re
import signal
import socket
import subprocess
import sys
import time
from contextlib import nullcontext
from functools import partial
from types import SimpleNamespace

import gymnasium as gym
import numpy as np
import psutil
import pytest
from gymnasium import spaces
from gymnasium.vector import AsyncVectorEnv, AutoresetMode

from proximo.cli.main import main
from proximo.config import Config
from proximo.envs.calls import call_envs
from proximo.envs.gym import make_gym
from proximo.envs.gym_loop import GymEnvs
from proximo.envs.gym_source import EnvSource, finish_env
from proximo.envs.state.check import same_steps
from proximo.envs.time_limit import TimeLeft
from proximo.envs.workers.envs import WorkerEnvs
from proximo.envs.workers.process import restart_seeds, run_worker
from proximo.errors import EnvError, UsageError
from tests.support.probes import Probe
from tests.support.runs import CrashError, at_iteration, crash, rows, same_logs, same_weights, train
from tests.support.workers import running_workers

SEEDS = [1, 2, 3, 4]


def make_envs(env_id="CartPole-v1", workers=2, timeout=60.0, **fields):
    return make_gym(Config(env_id=env_id, env_workers=workers, env_timeout=timeout, **fields), SEEDS)


def have_ended(pids):
    """Whether all processes have ended."""
    return all(not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE for pid in pids)


def test_bit_identical_to_one_process():
    """Steps equal those of GymEnvs with the same seeds and actions, also of other workers that load the state."""
    envs, single = make_envs(), make_envs(workers=0)
    assert same_steps(envs.reset(), single.reset())
    rng = np.random.default_rng(0)
    for _ in range(100):
        action = rng.integers(0, 2, 4)
        assert same_steps(envs.step(action), single.step(action))
    state, copy = envs.state(), make_envs()
    copy.reset()
    copy.load(state)
    for _ in range(100):
        action = rng.integers(0, 2, 4)
        assert same_steps(envs.step(action), copy.step(action))
    assert envs.render().shape == (400, 600, 3)
    pids = running_workers(envs) + running_workers(copy)
    assert len(pids) == 4
    envs.close()
    copy.close()
    assert have_ended(pids)


class Local(Probe):
    """Differs in worker processes, in the way that `how` names."""

    def __init__(self, how):
        self.how, self.inside = how, multiprocessing.parent_process() is not None
        if how == "space" and self.inside:
            self.observation_space = spaces.Box(-1, 1, (1,), np.float32)

    def observe(self):
        return super().observe()[:self.observation_space.shape[0]]

    def reset(self, **how):
        observation, info = super().reset(**how)
        masked = self.how == ("masked inside" if self.inside else "masked outside")
        return observation, {"action_mask": [True, False]} if masked else info


def make_local(how, seeds, first_index=0):
    return GymEnvs(partial(Local, how), seeds, "Local", "same-step", first_index)


@pytest.mark.parametrize(("how", "words"), [
    ("space", r"an environment has observations \(1,\) float32, and another one has \(2,\) float32"),
    ("masked inside", "the first reset.. of some environments returns an action_mask, and that of others does not"),
    ("masked outside", "the first reset.. of some environments returns an action_mask, and that of others does not")])
def test_workers_whose_environments_differ_are_refused(how, words):
    """One number would be copied into both of a row, and a mask would not reach the policy."""
    envs = WorkerEnvs(partial(make_local, how), SEEDS, 2, 60.0, "Local")
    with pytest.raises(EnvError, match=words):
        envs.reset()
    envs.close()


class Handle(Probe):
    """Its state cannot be saved."""

    def __init__(self):
        self.handle = {1, 2}


def make_handle_last(seeds, first_index=0):
    return GymEnvs(Handle if first_index else Probe, seeds, "Handle", "same-step", first_index)


def test_one_worker_whose_state_cannot_be_saved_is_enough():
    """Otherwise a checkpoint would be said to continue exactly, and have no environments."""
    envs = WorkerEnvs(make_handle_last, SEEDS, 2, 60.0, "Handle")
    envs.reset()
    assert not envs.keeps_state and envs.state() is None
    envs.close()


class Holding(spaces.Discrete):
    """Has a part of a class that its environment generates, as grid2op does."""


class Generating(Probe):
    def __init__(self):
        kind = globals()["Generated"] = type("Generated", (), {"__module__": __name__})
        space = Holding(2)
        space.part = kind()
        self.action_space = spaces.Tuple([space, spaces.Dict({"b": spaces.MultiDiscrete([2, 3]), "a": spaces.Box(-1, 1, (2,)),
                                                              "c": spaces.MultiBinary(2)})])


def make_generating(seeds, first_index=0):
    return GymEnvs(Generating, seeds, "Generating", "same-step", first_index)


def test_what_a_space_holds_is_not_sent_to_workers():
    """The class of its part does not exist in a new process before the environment is made there."""
    envs = WorkerEnvs(make_generating, SEEDS, 2, 60.0, "Generating")
    assert isinstance(envs.action_space[0], Holding)
    assert envs.reset().obs.shape == envs.step(np.zeros((4, 7), np.float32)).obs.shape == (4, 2)
    envs.close()


def test_environments_that_workers_cannot_divide_are_refused():
    """Before a process starts. Config refuses them where one process trains."""
    with pytest.raises(UsageError, match="The 4 environments of a process cannot be divided among env_workers=3"):
        make_envs(workers=3)


def test_the_environment_that_shows_the_spaces_is_closed_if_it_cannot_be_reset():
    closed = []

    class Unready(Probe):
        def reset(self, *, seed=None, options=None):
            raise RuntimeError("not ready")

        def close(self):
            closed.append(1)

    with pytest.raises(EnvError, match="reset raised RuntimeError: not ready"):
        WorkerEnvs(lambda seeds, first_index=0: GymEnvs(Unready, seeds, "Unready", first_index=first_index), SEEDS, 2, 60.0,
                   "Unready")
    assert closed == [1]


def test_masks_and_filler_rows_travel():
    """Steps with a mask and next-step resets equal those of one process."""
    fields = {"env_id": "tests.support.probes:Masked-v0", "autoreset": "next-step"}
    envs, single = make_envs(**fields), make_envs(workers=0, **fields)
    step, same = envs.reset(), single.reset()
    for _ in range(12):
        assert same_steps(step, same) and step.mask.dtype == bool
        action = np.argmax(step.mask, axis=1)
        step, same = envs.step(action), single.step(action)
    envs.close()


class Flags(Probe):
    """Observations are booleans."""

    observation_space = spaces.Box(0, 1, (2,), np.bool_)

    def observe(self):
        return np.array([self.cue > 0, self.played % 2 == 0])


def test_boolean_observations_stay_boolean():
    """What acting was compiled for are the observations of one process."""
    single = GymEnvs(Flags, SEEDS, "Flags")
    envs = WorkerEnvs(lambda seeds, first_index=0: GymEnvs(Flags, seeds, "Flags", first_index=first_index), SEEDS, 2,
                      60.0, "Flags")
    step, same = envs.reset(), single.reset()
    for _ in range(6):
        assert same_steps(step, same)
        assert step.obs.dtype == step.final_obs.dtype == same.obs.dtype == envs.obs_dtype == np.bool_
        step, same = envs.step(np.zeros(4, int)), single.step(np.zeros(4, int))
    envs.close()


@pytest.mark.parametrize("fault", [False, True])
def test_environments_in_workers_are_closed(fault, tmp_path):
    """At the end, and in the workers that go on if another one has raised."""
    class Closing(Probe):
        def step(self, action):
            if fault and self.seed == SEEDS[0]:
                raise RuntimeError("the motor is on fire")
            return super().step(action)

        def reset(self, *, seed=None, options=None):
            self.seed = seed or self.seed
            return super().reset(seed=seed, options=options)

        def close(self):
            (tmp_path / f"{self.seed}").touch()

    envs = WorkerEnvs(lambda seeds, first_index=0: GymEnvs(Closing, seeds, "Closing", first_index=first_index), SEEDS, 2,
                      60.0, "Closing")
    try:
        envs.reset()
        envs.step(np.zeros(4, int))
    except EnvError:
        assert fault
    envs.close()
    assert {path.name for path in tmp_path.iterdir()} == {str(seed) for seed in SEEDS}


def test_environments_have_time_to_close_after_a_fault(tmp_path):
    """Such as one that waits for the end of its engine. After a second it was killed."""
    class Slow(Probe):
        def step(self, action):
            raise RuntimeError("the motor is on fire")

        def close(self):
            time.sleep(2)
            (tmp_path / "closed").touch()

    envs = WorkerEnvs(lambda seeds, first_index=0: GymEnvs(partial(Slow), seeds, "Slow"), [1], 1, 60.0, "Slow")
    envs.reset()
    (tmp_path / "closed").unlink()  # by the environment that shows the spaces
    play_until_fault(envs)
    assert (tmp_path / "closed").exists()


class WithEngine(Probe):
    """Starts another process, and waits for its answer in vain."""

    def __init__(self, path):
        super().__init__()
        self.engine = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], start_new_session=True)
        with open(path, "a") as file:
            file.write(f"{self.engine.pid}\n")

    def step(self, action):
        self.engine.wait(60)
        return super().step(action)

    def close(self):
        self.engine.kill()
        self.engine.wait()


def test_what_a_killed_worker_has_started_ends_with_it(tmp_path):
    """The engine of a game that hangs. Every worker that was killed or replaced left one behind."""
    make = partial(WithEngine, tmp_path / "pids")
    envs = WorkerEnvs(lambda seeds, first_index=0: GymEnvs(make, seeds, "WithEngine"), SEEDS, 2, 60.0, "WithEngine")
    envs.reset()
    envs._timeout = 2.0
    pids = [int(line) for line in (tmp_path / "pids").read_text().split()]
    assert len(pids) == 5 and not have_ended(pids[1:])
    message, _ = play_until_fault(envs)
    end = time.monotonic() + 10
    while not have_ended(pids) and time.monotonic() < end:  # what is killed ends a moment later
        time.sleep(0.05)
    assert "did not answer within 2 s" in message and have_ended(pids)


def play_until_fault(envs, steps=50):
    """Return the message of the error, and after how many seconds it was raised."""
    begin = time.monotonic()
    with pytest.raises(EnvError) as caught:
        for _ in range(steps):
            begin = time.monotonic()
            envs.step(np.zeros(4, int))
    return str(caught.value), time.monotonic() - begin


@pytest.mark.parametrize(("name", "words"), [
    ("raises", ["environment 0", "step 7", "RuntimeError: the motor is on fire"]),
    ("nan_obs", ["environment 0", "step 7", "observation is not finite"]),
    ("dies", ["environments", "step 7", "SIGKILL"]),
    ("hangs", ["environments 0-1", "step 7", "did not answer within 4 s"]),
])
def test_faults_are_reported_and_end_all_workers(name, words):
    """The message names environment, step and cause; only a hang is waited for, and no process is left."""
    envs = make_envs(f"tests.support.probes:Faulty_{name}-v0", timeout=600.0)
    envs.reset()
    envs._timeout = 4.0 if name == "hangs" else 600.0  # from here on: a slow machine needs longer to start workers
    pids = running_workers(envs)
    message, seconds = play_until_fault(envs)
    assert all(word in message for word in words), message
    assert seconds < 60 and have_ended(pids)
    with pytest.raises(EnvError, match="have ended"):
        envs.step(np.zeros(4, int))
    envs.close()


@pytest.mark.parametrize(("number", "words"), [(signal.SIGKILL, "SIGKILL"), (signal.SIGSTOP, "was stopped")])
def test_signals_from_outside(number, words):
    """The second worker receives the signal; the message names its environments, long before the timeout."""
    envs = make_envs(timeout=600.0)
    envs.reset()
    pids = running_workers(envs)
    os.kill(pids[1], number)
    message, seconds = play_until_fault(envs)
    assert "environments 2-3" in message and words in message and seconds < 60 and have_ended(pids)


@pytest.mark.parametrize(("passed", "polls"), [(1.0, 60), (100_000.0, 30)])
def test_time_in_which_all_processes_are_stopped_does_not_count(passed, polls, monkeypatch):
    """A worker has 60 s. A wait of one second that takes longer, as after Ctrl-Z and `fg` a day later, counts as two."""
    clock, asked = [0.0], []

    def poll(seconds):
        asked.append(seconds)
        clock[0] += passed
        return False

    vector = SimpleNamespace(parent_pipes=[SimpleNamespace(poll=poll)], processes=[SimpleNamespace(pid=os.getpid())])
    envs = SimpleNamespace(_timeout=60.0, _time=1, fault=lambda k, cause: EnvError(cause))
    with monkeypatch.context() as patched, pytest.raises(EnvError, match="did not answer within 60 s"):
        patched.setattr(time, "monotonic", lambda: clock[0])
        WorkerEnvs.wait_for_answer(envs, vector, 0, TimeLeft(60.0))
    assert asked == [1.0] * polls


def test_time_in_which_this_process_is_stopped_while_workers_start_does_not_count(monkeypatch):
    """By a clock on which a day passes between the first look at the time that is left and the second one."""
    looks = itertools.count()
    monkeypatch.setattr("proximo.envs.workers.start.POLL_SECONDS", 0.02)
    monkeypatch.setattr("proximo.envs.time_limit.time",
                        SimpleNamespace(monotonic=lambda: time.monotonic() + 86_400.0 * (next(looks) > 3)))
    envs = make_envs(timeout=600.0)
    assert next(looks) > 4
    envs.reset()
    envs.close()


def test_a_worker_that_is_lost_before_training_is_told_so():
    """In the copies that are played to find out whether the state can be saved."""
    envs = make_envs("tests.support.probes:Faulty_dies-v0", restart_envs=3)
    with pytest.raises(EnvError, match="SIGKILL. This happened before training, when copies of its environments were"):
        print(envs.keeps_state)
    envs.close()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("called_before", [False, True])
def test_signals_to_all_processes_are_left_to_the_parent(called_before, number):
    """Ctrl-C, and what `timeout`, systemd and SLURM send. Also where a method is called before the first reset, as of
    environments that are made again."""
    envs = make_envs()
    if called_before:
        envs.call("get_wrapper_attr", "render_mode")
    envs.reset()
    for pid in running_workers(envs):
        os.kill(pid, number)
    assert envs.step(np.zeros(4, int)).valid.all()
    envs.close()


ENDS = """
import sys
from proximo.config import Config
from proximo.envs.gym import make_gym
from tests.support.workers import running_workers

if __name__ == "__main__":
    sys.kept = make_gym(Config(env_workers=2), [1, 2])
    sys.kept.reset()
    print(*running_workers(sys.kept))
"""


def test_a_program_ends_without_closing_its_environments(tmp_path):
    """The standard library would send SIGTERM to the workers, and wait for their ends."""
    script = tmp_path / "ends.py"
    script.write_text(ENDS)
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=60,
                          env=os.environ | {"PYTHONPATH": os.getcwd()})
    assert (done.returncode, done.stderr) == (0, "") and len(done.stdout.split()) == 2
    assert have_ended(map(int, done.stdout.split()))


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_a_lost_worker_is_replaced(how, capsys):
    """Its rows of that step are truncated, not valid, and end in the last observation; episodes begin in them. The other
    rows equal those of environments without a fault. A copy that loads the state continues equally, and counts on."""
    envs, whole = make_envs(restart_envs=1, timeout=30.0), make_envs()
    assert same_steps(envs.reset(), whole.reset())
    for t in range(40):
        action = np.array([t % 2, 0, 1, (t // 2) % 2])
        if t == 5:
            before = envs.step(action).obs.copy()
            whole.step(action)
            old = running_workers(envs)
            os.kill(old[1], how)
            continue
        step, same = envs.step(action), whole.step(action)
        lost = np.array([False, False, True, True]) & (t == 6)
        assert np.array_equal(step.obs[:2], same.obs[:2]) and np.array_equal(step.truncated, lost)
        assert np.array_equal(step.valid, ~lost) and (step.metrics["env_restarts"] == (t >= 6)).all()
        if t == 6:
            assert np.array_equal(step.final_obs[2:], before[2:]) and step.first[2:].all() and not step.reward[2:].any()
            assert not step.episode.finished.any() and (np.abs(step.obs[2:]) < 0.06).all()
            assert (step.obs[2:] != same.obs[2:]).any()
    said = capsys.readouterr().err
    assert said.count("replaced (restart 1 of 1).") == 1 and "environments 2-3 (CartPole-v1), step 7" in said
    copy = make_envs(restart_envs=1)
    copy.reset()
    copy.load(envs.state())
    for _ in range(30):
        step, same = envs.step(np.ones(4, int)), copy.step(np.ones(4, int))
        assert same_steps(step, same) and (same.metrics["env_restarts"] == 1).all()
    pids = running_workers(envs)
    assert have_ended(old[1:]) and pids[0] == old[0]
    os.kill(pids[0], signal.SIGKILL)
    message, _ = play_until_fault(envs)
    assert "environments 0-1" in message and "1 workers were replaced before (--restart-envs)" in message
    assert have_ended(pids)
    for one in (whole, copy):
        one.close()


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
@pytest.mark.parametrize("ask", ["state", "render", "call"])
def test_a_worker_that_is_lost_between_two_steps_is_replaced(ask, how):
    """The lost episodes end in the next step, as above. A checkpoint in between continues equally, also without
    --restart-envs."""
    envs, whole = make_envs(restart_envs=1, timeout=30.0), make_envs()
    assert same_steps(envs.reset(), whole.reset())
    before, lost = whole.step(np.ones(4, int)).obs.copy(), np.array([False, False, True, True])
    envs.step(np.ones(4, int))
    os.kill(running_workers(envs)[1], how)
    if ask == "call":
        assert call_envs(envs, "get_wrapper_attr", "gravity") == [9.8] * 4
    else:
        assert getattr(envs, ask)() is not None
    state, copies = envs.state(), [envs, make_envs(restart_envs=1), make_envs()]
    for copy in copies[1:]:
        copy.reset()
        copy.load(state)
    for t in range(30):
        same = whole.step(np.ones(4, int))
        steps = [copy.step(np.ones(4, int)) for copy in copies]
        for step in steps:
            assert np.array_equal(step.obs[:2], same.obs[:2]) and np.array_equal(step.obs, steps[0].obs)
            assert np.array_equal(step.truncated, lost & (t == 0)) and np.array_equal(step.valid, ~lost | (t > 0))
            if t == 0:
                assert np.array_equal(step.final_obs[2:], before[2:]) and step.first[2:].all()
                assert not step.reward[2:].any() and not step.episode.finished.any()
        assert all((step.metrics["env_restarts"] == 1).all() for step in steps[:2])
    for one in (whole, *copies):
        one.close()


FRAGILE = """import os
from pathlib import Path
from tests.support.probes import Probe

LEFT = Path(__file__).with_name("left")


class Fragile(Probe):
    def reset(self, **words):
        left = int(LEFT.read_text())
        if left:
            LEFT.write_text(str(left - 1))
            os._exit(7)
        return super().reset(**words)
"""


def test_a_worker_that_is_lost_while_it_replaces_another_is_replaced_too(tmp_path, caplog):
    (tmp_path / "fragile.py").write_text(FRAGILE)
    (tmp_path / "left").write_text("0")
    envs = make_gym(Config(env_file=f"{tmp_path}/fragile.py:Fragile", env_workers=2, restart_envs=5).resolved(), SEEDS)
    envs.reset()
    (tmp_path / "left").write_text("2")
    kill_worker(envs, 1)
    assert np.array_equal(envs.step(np.zeros(4, int)).valid, [True, True, False, False])
    assert envs.step(np.zeros(4, int)).valid.all() and caplog.text.count("worker process 1 ended with status 7") == 2
    (tmp_path / "left").write_text("9")
    kill_worker(envs, 0)
    message, _ = play_until_fault(envs)
    assert "worker process 0 ended with status 7. 5 workers were replaced before (--restart-envs)" in message


def test_every_restart_has_seeds_of_its_own():
    """A fault that depends on the seed is not repeated, whichever restart it is."""
    drawn = [seed for restart in range(4) for seed in restart_seeds(SEEDS, restart)]
    assert drawn[:4] == SEEDS and len(set(drawn)) == 16 and all(0 <= seed < 2**31 for seed in drawn)


@pytest.mark.parametrize("sent", [[], [("_call", ("metadata", (), {}))]])
def test_a_worker_whose_parent_was_killed_prints_nothing(sent):
    """It waits for a command, or sends an answer. Each of them printed a traceback, also after a kill -9 of the run."""
    context = multiprocessing.get_context("spawn")
    parent, child = context.Pipe()
    closed = []
    env = gym.make("CartPole-v1")
    env.close = lambda: closed.append(True)
    for command in sent:
        parent.send(command)
    run_worker(0, lambda: env, child, parent, None, queue.SimpleQueue(), AutoresetMode.NEXT_STEP)
    assert closed
    env.close = lambda: 1 / 0
    parent, child = context.Pipe()
    with pytest.raises(ZeroDivisionError):
        run_worker(0, lambda: env, child, parent, None, queue.SimpleQueue(), AutoresetMode.NEXT_STEP)


def test_workers_of_older_versions_of_gymnasium_get_what_they_take(monkeypatch):
    """Before 1.4, they had no semaphore, and a worker that was started again ended with a TypeError."""
    got = []
    for worker in (lambda a, b, c, d, e, f, g: got.append((a, b, c, d, e, f, g)),
                   lambda a, b, c, d, e, f, g, h: got.append((a, b, c, d, e, f, g, h))):
        monkeypatch.setattr("proximo.envs.workers.process._async_worker", worker)
        run_worker(*range(7))
    assert got == [(*range(7),), (*range(7), None)]


def test_a_worker_that_cannot_be_replaced_leaves_no_pipe_open(monkeypatch):
    """Where the machine has no process left, for example."""
    envs, made = make_envs(restart_envs=1, timeout=30.0), []
    envs.reset()
    pids = running_workers(envs)
    context = multiprocessing.get_context("spawn")
    pipe = context.Pipe

    def fail(self):
        raise OSError("no process left")

    monkeypatch.setattr(type(context), "Pipe", lambda self, duplex=True: made.extend(pipe(duplex)) or made)
    monkeypatch.setattr(context.Process, "start", fail)
    os.kill(pids[1], signal.SIGKILL)
    message, _ = play_until_fault(envs)
    assert "worker process 1 was killed" in message and have_ended(pids)
    assert len(made) == 2 and all(end.closed for end in made)


def test_a_death_at_a_fixed_step_is_the_same_death_every_time():
    """Two runs whose environments die by themselves in their 7th step: equal steps."""
    def play():
        envs = make_envs("tests.support.probes:Faulty_dies-v0", workers=1, restart_envs=1)
        steps = [envs.reset().obs.copy()]
        for _ in range(9):
            step = envs.step(np.zeros(4, int))
            steps.append(np.column_stack([step.obs, step.valid, step.truncated, step.first, step.metrics["env_restarts"]]))
        envs.close()
        return steps

    one, other = play(), play()
    assert all(map(np.array_equal, one, other))
    assert [step[0, -1] for step in one[1:]] == [0] * 6 + [1] * 3


def test_training_goes_on_without_a_lost_worker(tmp_path):
    """What was lost is neither counted as steps nor learned from."""
    words = ["--env-id", "tests.support.probes:Faulty_dies-v0", "--env-kwargs", "at=71", "--env-workers", "1",
             "--restart-envs", "2"]
    assert train(tmp_path / "run", *words) == 0
    last = rows(tmp_path / "run", "metrics.csv")[-1]
    assert int(last["global_step"]) == 320 - 4 and float(last["charts/env_restarts"]) == 2
    assert float(last["losses/value_loss"]) < 10


def test_a_run_whose_worker_is_lost_at_a_checkpoint_resumes_to_equal_weights(tmp_path, monkeypatch):
    """The checkpoint is written between the loss and the step that ends the lost episodes."""
    words = ["--env-id", "CartPole-v1", "--env-workers", "2", "--restart-envs", "1"]

    def kill_last():
        max(multiprocessing.active_children(), key=lambda one: one.name).kill()  # Worker<AsyncVectorEnv>-1

    for name in ("whole", "broken"):
        with monkeypatch.context() as patch, pytest.raises(CrashError) if name == "broken" else nullcontext():
            at_iteration(patch, 6, kill_last)
            if name == "broken":
                at_iteration(patch, 8, crash)
            assert train(tmp_path / name, *words) == 0
    assert main(["resume", str(tmp_path / "broken")]) == 0
    assert same_weights(tmp_path / "whole", tmp_path / "broken") and same_logs(tmp_path / "whole", tmp_path / "broken")
    last = rows(tmp_path / "broken", "metrics.csv")[-1]
    assert int(last["global_step"]) == 320 - 1 and float(last["charts/env_restarts"]) == 1


def test_restarts_need_workers(capsys):
    assert main(["train", "ppo", "--restart-envs", "2"]) == 2
    assert "restart_envs=2 needs worker processes" in capsys.readouterr().err


def test_workers_that_do_not_start_are_killed_and_no_other_process(monkeypatch):
    """Another thread of the program may start processes of its own at the same time."""
    other, workers = multiprocessing.get_context("spawn").Process(target=time.sleep, args=(60,), daemon=True), []

    def check_spaces(vector):
        other.start()
        workers.extend(vector.processes)
        raise RuntimeError("no answer")

    monkeypatch.setattr(AsyncVectorEnv, "_check_spaces", check_spaces)
    try:
        with pytest.raises(EnvError, match="a worker process did not start"):
            make_envs()
        assert other.is_alive() and [worker.is_alive() for worker in workers] == [False, False]
    finally:
        other.kill()
        other.join()


@pytest.mark.parametrize("hangs", [True, False])
def test_workers_that_are_started_after_the_time_is_over_are_killed(hangs, monkeypatch):
    """On a slow machine. Nothing watched them: one that hung was waited for without end."""
    start, check, workers = AsyncVectorEnv.__init__, AsyncVectorEnv._check_spaces, []

    def slow(vector, *words, **options):
        time.sleep(1)
        start(vector, *words, **options)

    def check_spaces(vector):
        workers.extend(vector.processes)
        if hangs:
            [os.kill(process.pid, signal.SIGSTOP) for process in workers]
        check(vector)

    monkeypatch.setattr(AsyncVectorEnv, "__init__", slow)
    monkeypatch.setattr(AsyncVectorEnv, "_check_spaces", check_spaces)
    with pytest.raises(EnvError, match="2 worker processes did not start within 0.5 s"):
        make_envs(timeout=0.5)
    assert not any(worker.is_alive() for worker in workers)


@pytest.mark.parametrize(("number", "words"), [(errno.EMFILE, "Raise the limit of open files (ulimit -n), or use fewer"),
                                               (errno.EAGAIN, "Raise the limit of processes (ulimit -u), or use")])
def test_a_limit_of_the_system_is_named(number, words, monkeypatch):
    def start(self):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(multiprocessing.get_context("spawn").Process, "start", start)
    with pytest.raises(EnvError, match=re.escape(words)):
        make_envs()


def test_a_worker_of_a_pool_is_told_what_to_use(monkeypatch):
    """Its processes are daemons, which may not start others."""
    monkeypatch.setitem(multiprocessing.current_process()._config, "daemon", True)
    with pytest.raises(EnvError, match="Leave env_workers out, or use concurrent.futures.ProcessPoolExecutor"):
        make_envs().reset()


def test_the_first_environment_that_hangs_ends_in_an_error():
    """It is made in this process, to read its spaces; nothing watched it."""
    class Waiting(Probe):
        def reset(self, **options):
            time.sleep(600)

    make = partial(GymEnvs, Waiting, env_id="Waiting")
    with pytest.raises(EnvError, match="Waiting: making and resetting the first environment did not return within 0.5 s"):
        WorkerEnvs(make, [1, 2], workers=2, timeout=0.5, name="Waiting")


def test_a_program_from_standard_input_is_told_to_be_written_into_a_file():
    """Workers run the program again, which is not there any more."""
    program = "from proximo.envs.gym import make_gym\nfrom proximo.config import Config\n"
    program += "if __name__ == '__main__':\n    make_gym(Config(num_envs=1, env_workers=1), [1]).reset()\n"
    ended = subprocess.run([sys.executable, "-"], input=program, text=True, capture_output=True, timeout=100)
    assert "it came from standard input: write it into a file." in ended.stderr.splitlines()[-1]


def test_what_a_notebook_defines_is_said_to_be_missing_in_workers():
    """An id that is registered in this process only, and a wrapper of __main__."""
    gym.register("OnlyHere-v0", "gymnasium.envs.classic_control:CartPoleEnv", max_episode_steps=10)
    try:
        with pytest.raises(EnvError, match="OnlyHere-v0 is not registered in a worker process.*env_workers=0"):
            make_gym(Config(env_id="OnlyHere-v0", env_workers=2, num_envs=2), [1, 2]).reset()
    finally:
        gym.registry.pop("OnlyHere-v0")
    with pytest.raises(UsageError, match="env_wrappers=__main__:Nothing: worker processes do not have Nothing. Put it into"):
        finish_env(gym.make("CartPole-v1"), EnvSource("CartPole-v1", wrappers=["__main__:Nothing"]))


PORTS = """import multiprocessing, socket, time
from tests.support.probes import Probe


class Fixed(Probe):
    def __init__(self, port, waits=False):
        self.server = socket.socket()
        while True:
            try:
                self.server.bind(("127.0.0.1", port))
                return
            except OSError:
                if not waits:
                    raise
                time.sleep(0.1)

    def close(self):
        self.server.close()


class Slow(Probe):
    def __init__(self, seconds):
        self.seconds = seconds

    def close(self):
        time.sleep(self.seconds * (multiprocessing.parent_process() is not None))
"""


@pytest.mark.parametrize("waits", [False, True])
def test_a_port_that_every_environment_opens_is_named(waits, tmp_path):
    """Whether an environment fails, or waits until the port is free."""
    (tmp_path / "fixed.py").write_text(PORTS)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    cfg = Config(env_file=f"{tmp_path}/fixed.py:Fixed", env_kwargs={"port": port, "waits": waits}, env_workers=2, env_timeout=10.0)
    with pytest.raises(EnvError, match=("did not answer within 10 s.*" if waits else "in use.*") + "use the same port") as caught:
        make_gym(cfg.resolved(), [1, 2]).reset()
    assert str(caught.value).count("game-engines.md") == 1


def test_a_close_that_takes_too_long_is_cut_off_with_a_warning(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr("proximo.envs.workers.envs.END_SECONDS", 2.0)
    (tmp_path / "slow.py").write_text(PORTS)
    for seconds in (0.5, 60):
        assert "close()" not in caplog.text
        cfg = Config(env_file=f"{tmp_path}/slow.py:Slow", env_kwargs={"seconds": seconds}, env_workers=2)
        envs = make_gym(cfg.resolved(), [1, 2])
        envs.reset()
        pids = running_workers(envs)
        envs.close()
        assert have_ended(pids)
    assert "worker process 0, 1: close() of its environments did not return within 2 s" in caplog.text


LEVELS = """import os
from tests.support.probes import Probe


class Levels(Probe):
    level, tasks = 0, 0

    def observe(self):
        return super().observe() * 0 + self.level

    def next_task(self):
        self.tasks += 1

"""


def test_a_worker_that_replaces_another_has_the_attributes_that_were_set(tmp_path, caplog):
    """Also after a resume. What other methods have changed is named."""
    (tmp_path / "levels.py").write_text(LEVELS)
    cfg = Config(env_file=f"{tmp_path}/levels.py:Levels", env_workers=2, restart_envs=3).resolved()
    envs = make_gym(cfg, SEEDS)
    envs.reset()
    assert call_envs(envs, "set_wrapper_attr", "level", 3) and call_envs(envs, "get_wrapper_attr", "level") == [3] * 4
    envs.step(np.zeros(4, int))
    state = envs.state()
    kill_worker(envs, 1)
    assert (envs.step(np.zeros(4, int)).obs == 3).all() and call_envs(envs, "get_wrapper_attr", "level") == [3] * 4
    assert caplog.messages[-1].endswith("It is replaced (restart 1 of 3).")
    call_envs(envs, "next_task")
    kill_worker(envs, 0)
    envs.step(np.zeros(4, int))
    assert caplog.messages[-1].endswith("but not what these methods may have changed: next_task.")
    envs.close()
    copy = make_gym(cfg, SEEDS)
    copy.reset()
    copy.load(state)
    kill_worker(copy, 0)
    assert (copy.step(np.zeros(4, int)).obs == 3).all()
    copy.close()


def kill_worker(envs, k):
    envs._vector.processes[k].kill()
    envs._vector.processes[k].join()
