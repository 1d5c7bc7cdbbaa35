"""Which device --device auto selects; the size of XLA's thread pool (--threads), counted among the threads of a process."""

import os
import subprocess
import sys
from types import SimpleNamespace

import jax
import pytest

from proximo.config import Config
from proximo.envs.machine.cache import user_cache
from proximo.errors import UsageError
from proximo.on_jax import device
from proximo.on_jax.device import pick_device, set_up_jax

COUNT = """
import os
from pathlib import Path
from proximo.config import Config
from proximo.on_jax.device import set_up_jax
set_up_jax(Config(threads=int(os.environ["WANTED"]), device="cpu"))
print(sum("XLAEigen" in path.read_text() for path in Path("/proc/self/task").glob("*/comm")), os.environ.get("NPROC"))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="threads have names in /proc")
@pytest.mark.parametrize("wanted,given,expected", [("1", None, "1 None"), ("5", None, "5 None"), ("1", "3", "3 3")])
def test_the_pool_has_as_many_threads_as_asked_for(wanted, given, expected):
    """A value of NPROC that the user has set takes precedence over --threads, and our own is removed afterwards. In a
    separate process, because the pool is created when JAX starts."""
    env = {name: value for name, value in os.environ.items() if name not in ("NPROC", "XLA_FLAGS")}
    env |= {"WANTED": wanted, "JAX_PLATFORMS": "cpu"} | ({"NPROC": given} if given else {})
    done = subprocess.run([sys.executable, "-c", COUNT], env=env, capture_output=True, text=True, timeout=120)
    assert done.stdout.strip() == expected, done.stderr[-2000:]


@pytest.mark.parametrize(("present", "num_envs", "platform"), [(True, 4096, "gpu"), (True, 4, "cpu"), (False, 4096, "cpu")])
def test_device_auto(present, num_envs, platform, monkeypatch):
    cpu, gpu = SimpleNamespace(platform="cpu"), SimpleNamespace(platform="gpu")
    monkeypatch.setattr(jax, "local_devices", lambda backend=None: [cpu] if backend or not present else [gpu])
    assert pick_device(Config(num_envs=num_envs)).platform == platform


@pytest.mark.parametrize(("fields", "driver", "plugins", "expected"), [
    ({"device": "cpu"}, True, ["cuda"], [2]), ({"device": "auto"}, True, ["cuda"], [2]),
    ({"device": "auto", "num_envs": 4096}, True, ["cuda"], [0]), ({"device": "auto", "num_envs": 4096}, True, [], [2]),
    ({"device": "auto", "num_envs": 4096}, False, ["cuda"], [2]),
    ({"device": "auto", "num_envs": 4096, "cuda": False}, True, ["cuda"], [2]), ({"device": "cuda:1"}, True, [], [0])])
def test_where_a_gpu_may_learn_the_threads_that_compile_are_not_limited(fields, driver, plugins, expected, monkeypatch):
    """With --threads 1 XLA compiled for a GPU by one thread. And its kernels are those that repeat bit for bit."""
    threads, flags = [], "--xla_gpu_deterministic_ops=true"
    monkeypatch.setattr(device, "start_cpu", lambda number, ranks, devices=1: threads.append(number))
    monkeypatch.setattr(device, "pick_device", lambda cfg: jax.local_devices(backend="cpu")[0])
    monkeypatch.setattr(device.Path, "exists", lambda path: driver and str(path) == "/dev/nvidiactl")
    monkeypatch.setattr(device, "entry_points", lambda group: plugins)
    for given, found in (("", flags), ("--a=b", f"--a=b {flags}"), ("--xla_gpu_deterministic_ops=false",) * 2):
        monkeypatch.setenv("XLA_FLAGS", given)
        set_up_jax(Config(threads=2, **fields))
        assert os.environ["XLA_FLAGS"] == (found if expected == [0] else given)
    assert threads == expected * 3
    monkeypatch.setenv("XLA_FLAGS", "")
    set_up_jax(Config(threads=2, torch_deterministic=False, **fields))
    assert os.environ["XLA_FLAGS"] == ""


def test_a_folder_of_compiled_functions_that_the_program_names_is_kept(tmp_path):
    before = jax.config.jax_compilation_cache_dir, jax.config.jax_persistent_cache_min_compile_time_secs
    try:
        for given, kept in ((str(tmp_path), str(tmp_path)), (None, str(user_cache("jax")))):
            jax.config.update("jax_compilation_cache_dir", given)
            device.keep_compiled()
            assert jax.config.jax_compilation_cache_dir == kept
    finally:
        jax.config.update("jax_compilation_cache_dir", before[0])
        jax.config.update("jax_persistent_cache_min_compile_time_secs", before[1])


def test_without_a_cache_functions_are_compiled_again(tmp_path, monkeypatch, caplog):
    """A file is where the folder should be: a warning, and no folder that JAX would complain about."""
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    before = jax.config.jax_compilation_cache_dir
    try:
        jax.config.update("jax_compilation_cache_dir", None)
        device.keep_compiled()
        assert jax.config.jax_compilation_cache_dir is None
    finally:
        jax.config.update("jax_compilation_cache_dir", before)
    assert "Set XDG_CACHE_HOME to a folder that can be written. Without it, every run" in caplog.text


def test_a_process_that_was_forked_after_training_is_refused(monkeypatch):
    """It would wait for the threads of XLA, which a fork does not copy."""
    monkeypatch.setattr(device, "STARTED", {})
    device.refuse_forked()
    device.refuse_forked()
    monkeypatch.setattr(os, "getpid", lambda: 1)
    with pytest.raises(UsageError, match='Start it with multiprocessing.get_context."spawn".'):
        device.refuse_forked()


def test_set_up_refuses_a_fork_and_keeps_the_backend(monkeypatch):
    called = []
    monkeypatch.setattr(device, "refuse_forked", lambda: called.append("refuse_forked"))
    monkeypatch.setattr(device, "keep_backend", called.append)
    assert called == [] and set_up_jax(Config(device="cpu", threads=1)) == called[1] and called[0] == "refuse_forked"


@pytest.mark.parametrize("platforms", ["cuda", "foo"])
def test_a_platform_that_is_not_there_is_named(platforms):
    """It was a traceback of JAX, of an assertion for cuda. In a separate process, which has not started JAX."""
    done = subprocess.run([sys.executable, "-m", "proximo", "train", "ppo", "--framework", "jax", "--total-timesteps", "512"],
                          env=os.environ | {"JAX_PLATFORMS": platforms}, capture_output=True, text=True)
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert f"JAX does not start with JAX_PLATFORMS={platforms}" in done.stderr and "Unset JAX_PLATFORMS" in done.stderr


@pytest.mark.parametrize(("asked", "platform"), [("auto", "gpu"), ("cpu", "cpu")])
def test_device_ids_select_a_gpu(asked, platform, monkeypatch):
    """A small network was trained on the CPU without a word."""
    cpu, gpu = SimpleNamespace(platform="cpu"), SimpleNamespace(platform="gpu")
    monkeypatch.setattr(jax, "local_devices", lambda backend=None: [cpu] if backend else [gpu])
    assert pick_device(Config(device=asked, device_ids=(1,))).platform == platform


def test_a_backend_exists_until_the_process_ends():
    """XLA compiles for it on threads of its own, also after a KeyboardInterrupt."""
    client = jax.local_devices(backend="cpu")[0].client
    count = sys.getrefcount(client)
    device.keep_backend(jax.local_devices(backend="cpu")[0])
    assert sys.getrefcount(client) == count + 1


@pytest.mark.parametrize("cpu,options,expected", [
    (True, {"xla_cpu_enable_fast_math": False}, {"xla_cpu_enable_fast_math": False}), (True, {"xla_cpu_unheard_of": True}, {}),
    (False, {"xla_cpu_enable_fast_math": False}, {})])
def test_options_that_this_version_of_xla_lacks_are_left_out(cpu, options, expected, monkeypatch):
    """Also all of them where a GPU learns. XLA refuses to compile with an option that it does not know."""
    monkeypatch.setattr(device, "IN_ORDER", options)
    monkeypatch.setattr(device, "on_cpu", lambda: cpu)
    device.knows_order.cache_clear()
    try:
        assert device.compiler_options() == expected
    finally:
        device.knows_order.cache_clear()
