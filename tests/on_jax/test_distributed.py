"""Several ranks on JAX (detail A2): two processes of torchrun, two nodes, and two devices of one process."""

import json
import os
import subprocess
import sys
import time
from dataclasses import replace
from importlib.util import find_spec
from itertools import chain, combinations
from types import SimpleNamespace

import numpy as np
import pytest
from gymnasium.spaces import Box

from proximo.cli.main import main
from proximo.types import Rollout
from proximo.variants import RPO
from tests.support.jax_replicas import CASES
from tests.support.spec import Spec
from tests.support.torchrun import COMPILE_FAST, launch, load_weights, run_two_nodes, same_on_both

MISSING = {"pool": sys.platform != "linux", "brax": not find_spec("brax")}
SHORT = ("inside", "outside")  # make test trains these; the others differ from them in the environments and the network
NAMES = [pytest.param(case, marks=[] if case in SHORT else [
    pytest.mark.long, pytest.mark.skipif(MISSING.get(case, False), reason=f"needs the package or the system of {case}")])
    for case in CASES]
ENV = {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": COMPILE_FAST}


def train_on_both(folder, *cases):
    """Train cases under one torchrun; both ranks write to the folder, which is returned."""
    process = launch("tests.support.jax_replicas", folder, *cases, **ENV)
    output = process.communicate(timeout=500)[1]
    assert process.returncode == 0, output[-4000:]
    return folder


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """The folder of what both ranks wrote for the short cases and the command."""
    return train_on_both(tmp_path_factory.mktemp("pair"), *SHORT, "command")


@pytest.fixture(scope="module")
def other_pair(tmp_path_factory):
    """The folder of what they wrote for the others."""
    cases = [case for case in CASES if case not in SHORT and not MISSING.get(case, False)]
    return train_on_both(tmp_path_factory.mktemp("others"), *cases)


@pytest.fixture
def folder_of_case(case, request):
    """The folder of a test's case; its processes are started at the first test that needs them."""
    return request.getfixturevalue("pair" if case in SHORT else "other_pair")


def notes_of(folder, case):
    return [json.loads((folder / f"{case}{rank}.json").read_text()) for rank in (0, 1)]


@pytest.mark.parametrize("case", NAMES)
def test_replicas_are_bit_identical_and_resume_exactly(case, folder_of_case):
    """Weights, statistics of normalisation, episodes and all logged numbers are equal on both ranks, after several
    rebuilds; a run that continues from a snapshot ends with the same weights."""
    one, other = load_weights(folder_of_case, case, 0), load_weights(folder_of_case, case, 1)
    assert one.keys() == other.keys() and all(np.array_equal(one[name], other[name]) for name in one)
    notes, cfg = notes_of(folder_of_case, case), CASES[case]
    assert notes[0]["iterations"] == notes[1]["iterations"] and len(notes[0]["iterations"]) == cfg.num_iterations
    assert notes[0]["mean"] == notes[1]["mean"] and notes[0]["count"] == notes[1]["count"]
    assert [note["resumed"] for note in notes] == [True, True]


@pytest.mark.parametrize("case", NAMES)
def test_statistics_and_episodes_are_those_of_all(case, folder_of_case):
    """The observations of both ranks are counted once per step and reset; rows are numbered over all ranks."""
    note, cfg = notes_of(folder_of_case, case)[0], CASES[case]
    steps, resets = note["iterations"][-1][0], 1 + (cfg.num_iterations - 1) // cfg.checkpoint_every
    filler = cfg.batch_size * cfg.num_iterations - steps  # EnvPool's rows that reset
    assert note["count"] == pytest.approx(steps + cfg.num_envs * resets + (0 if case == "pool" else filler), abs=4)
    assert (filler > 0) == (case == "pool")
    rows = set(chain(*(reported[2] for reported in note["iterations"])))
    assert rows == (set() if case == "brax" else set(range(cfg.num_envs)))  # Brax's episodes are longer than the run


@pytest.mark.parametrize("case", NAMES)
def test_seeds_of_environments_never_coincide(case, folder_of_case):
    """Not between ranks, and not before and after a rebuild (environments inside are not made again)."""
    made = [seeds for note in notes_of(folder_of_case, case) for seeds in note["seeds"]]
    assert len(made) == (2 if case in ("inside", "brax") else 2 * (1 + (CASES[case].num_iterations - 1) // 2))
    assert len(set(chain(*made))) == sum(map(len, made)) == len(made) * CASES[case].num_envs // 2


def test_only_the_first_process_writes(pair):
    assert [(pair / f"code{rank}").read_text() for rank in (0, 1)] == ["0", "0"]
    lines = (pair / "run" / "metrics.csv").read_text().splitlines()
    assert [line.split(",")[:2] for line in lines[1:]] == [["1", "64"], ["2", "128"], ["3", "192"]]
    assert json.loads((pair / "run" / "summary.json").read_text())["steps"] == 192


@pytest.mark.long
def test_two_nodes_equal_one(pair, tmp_path):
    """Two torchrun agents on the loopback interface give the same weights, bit for bit."""
    run_two_nodes("tests.support.jax_replicas", tmp_path, "outside", **ENV)
    assert same_on_both(pair, tmp_path, "outside")


def test_a_dead_process_ends_the_others(tmp_path):
    """Rank 1 dies before it connects to rank 0. torchrun ends rank 0, which waits, and reports the exit code."""
    began = time.monotonic()
    process = launch("tests.support.jax_replicas", tmp_path, "die", **ENV)
    output = process.communicate(timeout=120)[1]
    assert process.returncode != 0 and "exitcode  : 7" in output and time.monotonic() - began < 100


@pytest.mark.parametrize("words,sentence", [
    ("--device-ids 0 0 1 1", "--device-ids names 4 GPUs for 2 processes. Give one id for each"),
    ("--num-envs 5 --num-minibatches 1", "num_envs=5 is not divisible by 2 processes. Use a multiple of 2."),
    ("--recurrent lstm", "Each of 2 processes has 2 rows, which are not divisible by num_minibatches=4"),
    ("--num-seeds 2 --engine jax", "num_seeds=2 trains several agents in one process. Start it without torchrun")])
def test_sizes_that_do_not_fit_are_one_sentence(words, sentence, tmp_path, monkeypatch, capsys):
    """Reported before the processes connect, so that none waits for another."""
    for name, value in (("RANK", "0"), ("LOCAL_RANK", "0"), ("WORLD_SIZE", "2"), ("LOCAL_WORLD_SIZE", "2")):
        monkeypatch.setenv(name, value)
    folder = str(tmp_path / "run")
    assert main(["train", "ppo", *words.split(), "--framework", "jax", "--logger", "none", "--run-dir", folder]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert sum(sentence in line for line in lines) == 1 and not (tmp_path / "run").exists()


@pytest.mark.parametrize("ids,sentence", [
    ("0 0", "--device-ids names a device twice: 0 0"), ("0 7", "--device-ids names device 7. JAX sees"),
    ("5", "--device-ids names device 5. JAX sees"), ("-1", "device_ids=-1 must be at least 0"),
    ("0 1 2", "num_envs=4 is not divisible by 3 devices")])
def test_devices_that_do_not_fit_are_one_sentence(ids, sentence, tmp_path, capsys):
    words = ["train", "ppo", "--framework", "jax", "--logger", "none", "--run-dir", str(tmp_path / "run")]
    assert main([*words, "--device-ids", *ids.split()]) == 2
    assert sentence in capsys.readouterr().err


DEVICES = """
import json, logging
from dataclasses import replace
import jax
from proximo.errors import UsageError
from proximo.on_jax.loss import ppo_loss
from proximo.on_jax.setup import set_up
from tests.support.jax_replicas import INSIDE
from tests.on_jax.test_train import make_agent, make_envs, run

class Compiled(logging.Handler):
    seen = []

    def emit(self, record):
        self.seen += [record.getMessage()[:60]] * record.getMessage().startswith("Compiling")


TWO = replace(INSIDE, device_ids=(0, 1))
answers = {}
for name, cfg in (("inside", TWO), ("outside", replace(TWO, engine="gym")),
                  ("memory", replace(TWO, engine="gym", recurrent="lstm", memory_size=8)),
                  ("shared", replace(TWO, engine="gym", shared_network=True, norm_reward=False))):
    cfg = replace(cfg, total_timesteps=512)
    whole = run(cfg)
    again = run(cfg, whole[1][1])
    statistics = whole[-1][0].statistics
    answers[name] = {
        "steps": [it.steps for it, _, _ in whole], "kl": whole[-1][0].stats["losses/approx_kl"],
        "count": float(statistics.obs.count), "shape": list(statistics.obs.mean.shape),
        "same": all((again[-1][2][k] == x).all() for k, x in whole[-1][2].items())}
for name, before, after in (("fewer", TWO, replace(TWO, device_ids=())), ("more", replace(TWO, device_ids=()), TWO)):
    kept = run(replace(before, total_timesteps=512))[1][1]
    once, twice = (run(replace(after, total_timesteps=512), kept) for _ in range(2))
    answers[name] = {"steps": [it.steps for it, _, _ in once], "count": float(once[-1][0].statistics.obs.count),
                     "same": all((twice[-1][2][k] == x).all() for k, x in once[-1][2].items())}
for name, cfg in (("inside", TWO), ("outside", replace(TWO, engine="gym", recurrent="lstm", memory_size=8))):
    player, state = set_up(cfg, make_envs, make_agent, ppo_loss)
    state, _ = player.iterate(player.place(state))
    logging.getLogger("jax").addHandler(compiled := Compiled())
    with jax.log_compiles():
        for _ in range(2):
            state, _ = player.iterate(state)
    answers[name]["compiled"] = compiled.seen
    answers[name]["placed"] = len(state.adam.weights["critic.layers.0.weight" if name == "inside" else
                                                     "critic.weight"].sharding.device_set)
try:
    set_up(replace(TWO, engine="envpool"), make_envs, make_agent, ppo_loss)
except UsageError as error:
    answers["pool"] = str(error)
print(json.dumps(answers))
"""


@pytest.mark.long
def test_two_devices_of_one_process_learn_as_one():
    """Environments inside and outside the compiled function: exact resume, one normaliser, weights on both devices,
    nothing compiled twice. In a separate process, because the number of devices is fixed when JAX starts."""
    env = os.environ | ENV | {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.getcwd(),
                              "JAX_NUM_CPU_DEVICES": "2"}
    done = subprocess.run([sys.executable, "-c", DEVICES], env=env, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr[-4000:]
    found = json.loads(done.stdout.splitlines()[-1])
    for name in ("inside", "outside", "memory", "shared"):
        case = found[name]
        assert case["steps"] == [128, 256, 384, 512] and case["same"], name
        assert case["count"] == pytest.approx(4 * 128 + 4, abs=0.1) and case["shape"] == [4], name
        assert 0 <= case["kl"] < 0.2
    for name in ("fewer", "more"):  # environments start again, statistics continue
        assert found[name]["steps"] == [384, 512] and found[name]["same"], name
        assert found[name]["count"] == pytest.approx(4 * 128 + 4 + 4, abs=0.1)
        assert "are divided over another number of devices" in done.stderr
    for name in ("inside", "outside"):
        assert found[name]["placed"] == 2 and found[name]["compiled"] == [], found[name]
    assert "Start one process for each device with torchrun" in found["pool"]


def test_counts_of_processes_are_added_up_and_other_metrics_averaged(monkeypatch):
    """Over the processes that have them."""
    from proximo.on_jax import distributed
    from proximo.on_jax.train_step import Metrics
    from proximo.protocols import Episode

    other = iter([np.zeros((4, 2), bool), *np.zeros((2, 4, 2)), 1.0, 5.0, 7.0, np.nan, np.full(4, 2)])
    monkeypatch.setattr(distributed, "all_gather", lambda ranks, x: np.stack([x, next(other)]))
    own = Metrics(losses={}, episode=Episode(np.ones((4, 2), bool), *np.ones((2, 4, 2))), valid=np.full(4, 2),
                  charts={"env_restarts": 2.0, "speed": 3.0, "late": np.nan, "never": np.nan})
    found = distributed.gather_metrics(distributed.Ranks(process=0, processes=2, mesh=None), own)
    np.testing.assert_equal(found.charts, {"env_restarts": 3, "speed": 4, "late": 7, "never": np.nan})
    assert found.episode.finished.sum() == 8 and found.valid.tolist() == [4] * 4


def test_ranks_and_iterations_shuffle_and_draw_noise_of_their_own(monkeypatch):
    """In an update from the same rollout: otherwise rows with the same number would meet on all ranks. Every step has
    noise of its own too."""
    import jax

    from proximo.on_jax import train_step
    from proximo.on_jax.assemble import assemble
    from proximo.on_jax.box_heads import make_rpo_head
    from proximo.on_jax.loss import ppo_loss
    from proximo.on_jax.setup import make_learner

    drawn = []

    def note(learner, adam, batch, minibatches, *rest):
        drawn[-1] += [minibatches.index.tolist(), minibatches.noise.tolist()]
        return adam, {}

    def note_noise(agent, envs, normalizer, state, carry, noise):
        assert len(np.unique(noise)) == noise.size
        drawn.append([noise.tolist()])

    monkeypatch.setattr(train_step, "collect", note_noise)

    cfg = RPO(rpo_alpha=0.5, num_envs=2, num_steps=8, num_minibatches=2, update_epochs=1, total_timesteps=16)
    agent = assemble(Spec((3,), np.dtype(np.float32), Box(-1, 1, (1,))), cfg, make_rpo_head)
    zeros, no = np.zeros((8, 2), np.float32), np.zeros((8, 2), bool)
    rollout = Rollout(obs=np.zeros((8, 2, 3), np.float32), first=no, mask=None, action=zeros[..., None], logprob=zeros,
                      value=zeros, next_value=zeros, reward=zeros, terminated=no, done=no, valid=~no)
    keys, learner = train_step.stream_keys(1), make_learner(cfg, agent, ppo_loss)._replace(update=note, bind=lambda weights: agent)
    assert len({tuple(jax.random.key_data(key).tolist()) for key in keys}) == 3
    for rank, iteration in ((0, 1), (0, 1), (1, 1), (0, 2)):
        state = SimpleNamespace(adam=SimpleNamespace(weights=None), keys=keys, iteration=iteration - 1, envs=None, carry=None)
        train_step.make_play(learner, SimpleNamespace(num_envs=2), None, lambda rank=rank: rank)(state)
        train_step.make_learn(learner, lambda rank=rank: rank)(None, rollout, (), keys, iteration)
    one, again, *others = drawn
    assert one == again and len(one) == 3
    assert all(a != b for each in zip(one, *others) for a, b in combinations(each, 2))


def test_processes_with_a_pool_act_by_noise_of_their_own():
    """The same pools, of one seed, in two processes: the first actions differ."""
    pytest.importorskip("envpool_assets")
    from proximo.envs.envpool_xla import make_envpool_xla
    from proximo.envs.normalize import make_normalizer
    from proximo.on_jax.assemble import assemble
    from proximo.on_jax.distributed import Ranks
    from proximo.on_jax.loss import ppo_loss
    from proximo.on_jax.play_pool import PoolPlayer
    from proximo.on_jax.setup import first_state, make_learner

    cfg = replace(CASES["pool"], num_envs=16, num_steps=1, norm_obs=False, norm_reward=False)
    begun, actions = [], []
    for process in (0, 1):
        envs = make_envpool_xla(cfg, range(16))
        normalizer = make_normalizer(cfg, envs)
        learner = make_learner(cfg, assemble(normalizer.spec, cfg), ppo_loss)
        player = PoolPlayer(Ranks(process, 2, None), envs, normalizer, learner, None)
        state = first_state(player, cfg.seed, player.begin(0, normalizer.start()))
        begun.append(state.carry.obs.tolist())
        actions.append(player.play(state).rollout.action.tolist())
        envs.close()
    assert begun[0] == begun[1] and actions[0] != actions[1]
