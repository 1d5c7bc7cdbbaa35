"""Runs on Ray, with real training: a cluster of two nodes on this machine, one of which is killed."""

import os
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from proximo.bench.places.ray import RayPlace
from proximo.bench.runner import bench
from proximo.bench.task import Where
from proximo.errors import UsageError
from proximo.runs.folder.lock import holder
from tests.support.ray_cluster import ENVIRONMENT, ray_cluster
from tests.support.runs import same_logs, same_weights

pytest.importorskip("ray")

SET = """
seeds = 2
[[run]]
variant = "ppo"
env_ids = ["CartPole-v1"]
steps = 40960
label = "small"
overrides = {num_envs = 4, num_steps = 64, hidden_sizes = [32, 32], checkpoint_every = 20, threads = 1}
"""


@contextmanager
def begun(words, environment):
    process = subprocess.Popen(words, stderr=subprocess.PIPE, text=True, env=environment)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def wait_for(condition, process, seconds=200):
    end = time.monotonic() + seconds
    while not condition():
        assert process.poll() is None and time.monotonic() < end
        time.sleep(0.05)


@pytest.mark.long
def test_a_node_is_killed_and_the_results_are_those_of_an_undisturbed_benchmark(tmp_path):
    """Weights and logs of both seeds, bit for bit, against the same file on this machine without Ray."""
    file, out, place = tmp_path / "two.toml", tmp_path / "ray", tmp_path / "here"
    file.write_text(SET)
    with ray_cluster(2) as cluster:
        words = [sys.executable, "-m", "proximo", "bench", str(file), "--out", str(out), "--on", "ray", "--address",
                 cluster.address]
        with begun(words, os.environ | ENVIRONMENT) as process:
            wait_for(lambda: len({path.parents[1] for path in out.glob("*/*/*/checkpoints/*")}) == 2, process)
            cluster.tell("kill")
            said = process.communicate(timeout=300)[1]
    assert process.returncode == 0, said
    assert "it continues from its newest checkpoint" in said and "2 runs finished, 0 failed" in said
    assert bench(file, where=Where(workers=2), out=place) == 0
    folders = sorted(path.parent.relative_to(place) for path in place.rglob("summary.json"))
    assert len(folders) == 2
    assert all(same_weights(out / folder, place / folder) and same_logs(out / folder, place / folder) for folder in folders)


@pytest.mark.slow
def test_one_machine_needs_no_set_up_and_a_signal_ends_everything(tmp_path):
    """SIGTERM in mid-run: exit code 143, the run has saved its last iteration, and no process of it is left."""
    file, out = tmp_path / "two.toml", tmp_path / "out"
    file.write_text(SET.replace("40960", "4096000").replace("seeds = 2", "seeds = 1"))
    words = [sys.executable, "-m", "proximo", "bench", str(file), "--out", str(out), "--on", "ray"]
    with begun(words, os.environ) as process:
        wait_for(lambda: list(out.glob("*/*/*/checkpoints/*")), process)
        (run_dir,) = out.glob("*/*/1")
        trainer = holder(run_dir).split()[1]
        listening = [one.laddr.ip for child in psutil.Process(process.pid).children(recursive=True)
                     for one in child.net_connections(kind="inet") if one.status == psutil.CONN_LISTEN]
        assert len(listening) > 3 and set(listening) <= {"127.0.0.1", "::ffff:127.0.0.1"}  # as SECURITY.md says
        process.terminate()
        said = process.communicate(timeout=100)[1]
    assert process.returncode == 143 and "The same command continues" in said, said
    assert not Path(f"/proc/{trainer}").exists() and holder(run_dir) == ""
    assert "Stopped by SIGTERM" in (out / run_dir.relative_to(out).with_name("1.log")).read_text()


@pytest.mark.parametrize("address", ["127.0.0.1:1", "no-such-host.invalid:6379", "127.0.0.1:99999999"])
def test_an_address_without_a_cluster_is_told_at_once(address):
    """Ray itself would try for minutes. Its error does not say that the cluster may want a token."""
    begin = time.monotonic()
    with pytest.raises(UsageError, match=f"could not be reached or started at {address}: .* Give --address HOST:PORT .*"
                                         "with its token if it has one .RAY_AUTH_MODE=token, RAY_AUTH_TOKEN."):
        RayPlace(Where(on="ray", address=address))
    assert time.monotonic() - begin < 60
