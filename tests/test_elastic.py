"""torchrun with a changing number of nodes: one dies, the others continue, another one joins (docs/processes.md)."""

import json
import signal
import time

import psutil
import pytest

from proximo.runs.folder.checkpoint import checkpoints
from tests.support.runs import rows, same_logs, same_weights
from tests.support.torchrun import free_port, start

SIZES = ("--env-id tests.support.probes:Paced-v0 --num-steps 16 --num-minibatches 2 --update-epochs 1 "
         "--hidden-sizes 8 8 --checkpoint-every 2 --logger none --collective-timeout 60")


def start_node(port, run, pace, words, nodes="2:3", workers=1, head=True):
    """Start one agent of torchrun, which stands for a node; the first one serves the others."""
    agent = (f"torch.distributed.run --nnodes={nodes} --nproc-per-node={workers} --rdzv-backend=c10d --rdzv-id=test "
             f"--rdzv-endpoint=127.0.0.1:{port} --rdzv-conf=last_call_timeout=1,is_host={int(head)} --max-restarts=5 --monitor-interval=0.2 "
             "--local-addr=127.0.0.1")
    command = f"{agent} -m proximo train ppo {SIZES} {words} --resume auto --run-dir {run}"
    return start(command.split(), TORCH_DISABLE_SHARE_RDZV_TCP_STORE="1", PACE=str(pace))


def wait_until(condition, nodes, seconds=150):
    end = time.monotonic() + seconds
    while not condition():
        ended = [node.communicate()[1] for node in nodes if node.poll() is not None]
        assert time.monotonic() < end and not ended, "\n".join(ended)
        time.sleep(0.05)


def kill_node(node):
    """SIGKILL for an agent and its processes at once, as if the machine had lost its power."""
    every = [*psutil.Process(node.pid).children(recursive=True), psutil.Process(node.pid)]
    for process in every:
        process.send_signal(signal.SIGSTOP)
    for process in every:
        process.kill()
    node.communicate()


def trained_by(run, processes, since):
    """Whether so many processes train the run and have saved a checkpoint after iteration `since`."""
    try:
        found = json.loads((run / "config.json").read_text())["processes"]
    except FileNotFoundError:
        return False
    return found == processes and bool(checkpoints(run)) and int(checkpoints(run)[-1].name) > since


def newest(run):
    return int(checkpoints(run)[-1].name)


@pytest.mark.long
def test_a_world_that_shrinks_and_grows(tmp_path):
    """Three nodes with one process each; one is killed, two continue; a third joins. 5 environments in all become 3, 4,
    and 3 again. No row of the log is doubled, no step is lost, and the run ends where it was told to."""
    run, port, pace = tmp_path / "run", free_port(), tmp_path / "fast"
    words = "--num-envs 5 --total-timesteps 12000"
    nodes = [start_node(port, run, pace, words, head=number == 0) for number in range(3)]
    wait_until(lambda: trained_by(run, 3, 0), nodes)
    kill_node(nodes.pop())
    before = newest(run)
    wait_until(lambda: trained_by(run, 2, before), nodes)
    nodes.append(start_node(port, run, pace, words, head=False))
    before = newest(run)
    wait_until(lambda: trained_by(run, 3, before), nodes)
    pace.touch()
    said = [node.communicate(timeout=200)[1] for node in nodes]
    assert [node.returncode for node in nodes] == [0, 0, 0], said
    log = rows(run, "metrics.csv")
    steps, sizes = [int(row["global_step"]) for row in log], []
    for before, now in zip([0, *steps], steps):
        sizes += [now - before] if not sizes or sizes[-1] != now - before else []
    assert [int(row["iteration"]) for row in log] == [*range(1, len(log) + 1)]
    assert sizes == [48, 64, 48] and 12_000 - 48 < steps[-1] <= 12_000
    assert json.loads((run / "summary.json").read_text())["steps"] == steps[-1]
    everything = "".join(said)
    assert "Sizes that 3 processes cannot divide: num_envs 5 -> 3" in everything
    assert "was trained with 3 processes and is resumed with 2" in everything
    assert "was trained with 2 processes and is resumed with 3" in everything
    rates = [float(row["charts/learning_rate"]) for row in log]
    assert rates == sorted(rates, reverse=True) and rates[-1] < 2.5e-4 * 100 / 12_000


@pytest.mark.long
def test_the_same_world_after_a_restart_gives_the_same_bits(tmp_path):
    """One process of two is killed in mid-run; torchrun starts both again."""
    pace, words = tmp_path / "fast", "--num-envs 4 --total-timesteps 3200"
    node = start_node(free_port(), tmp_path / "run", pace, words, nodes="1:1", workers=2)
    wait_until(lambda: trained_by(tmp_path / "run", 2, 2), [node])
    psutil.Process(node.pid).children()[-1].kill()
    pace.touch()
    said = node.communicate(timeout=200)[1]
    assert node.returncode == 0 and "training continues after iteration" in said, said
    whole = start_node(free_port(), tmp_path / "whole", pace, words, nodes="1:1", workers=2)
    assert (whole.communicate(timeout=200), whole.returncode)[1] == 0
    assert same_weights(tmp_path / "run", tmp_path / "whole") and same_logs(tmp_path / "run", tmp_path / "whole")
