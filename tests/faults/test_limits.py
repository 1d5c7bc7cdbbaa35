"""Sizes that cannot be: they are refused before anything is allocated, with the product in the sentence."""

import subprocess
import sys

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import proximo
from proximo.cli.messages import exit_code
from proximo.config import Config
from proximo.envs.arrays.obs_layout import obs_layout
from proximo.envs.machine.memory import bytes_text, machine_bytes, memory_problem
from proximo.envs.machine.memory_needs import check_memory, network_memory
from proximo.errors import UsageError
from proximo.on_torch.assemble import assemble
from proximo.protocols import Spec
from tests.support.cgroups import write_cgroups
from tests.support.faults import check_end, end_of

pytestmark = pytest.mark.area("Sizes and memory")

LARGE = {"num_steps": (["--num-steps", 10**12, "--total-timesteps", 10**14], "num_steps=1000000000000 x num_envs=4 = 4,000,000,000,000 rows"),
         "num_envs": (["--num-envs", 10**10, "--total-timesteps", 10**14], "num_envs=10000000000 environments of at least"),
         "hidden_sizes": (["--hidden-sizes", 10**6, 10**6], "1000000 x 1000000 = 1,000,000,000,000 weights"),
         "policy_sizes": (["--policy-sizes", 10**6, 10**6], "policy_sizes=1000000 1000000"),
         "value_sizes": (["--value-sizes", 10**6, 10**6], "value_sizes=1000000 1000000"),
         "memory_size": (["--recurrent", "lstm", "--memory-size", 10**6], "memory_size=1000000"),
         "one layer": (["--hidden-sizes", 10**12], "hidden_sizes=1000000000000"),
         "numbers of hundreds of digits": (["--num-steps", "9" * 300, "--num-envs", "9" * 300], "rows of at least")}


@pytest.mark.parametrize("framework", ["torch", "jax"])
@pytest.mark.parametrize("name", LARGE)
def test_sizes_that_do_not_fit(name, framework, capsys, tmp_path):
    words, part = LARGE[name]
    end = end_of(capsys, "train", "ppo", *words, "--framework", framework, "--run-dir", tmp_path / "run")
    assert end.code == 2 and any(part in line for line in end.lines), end
    assert not (tmp_path / "run").exists()


class Wide(gymnasium.Env):
    """Observations of many numbers, none of which is made."""

    def __init__(self, space):
        self.observation_space, self.action_space = space, spaces.Discrete(2)


def small_machine(monkeypatch, most):
    monkeypatch.setattr("proximo.envs.machine.memory.machine_bytes", lambda: most)


def test_observations_that_do_not_fit(tmp_path, monkeypatch):
    """Floats, and the flags of a Discrete space, on a machine of 1 MB."""
    for space, most, part in ((spaces.Box(0, 1, (10**5,), np.float32), 10**6, "100,000 numbers .400,000 bytes. need 3.2 MB"),
                              (spaces.Discrete(10**6), 10**6, "1,000,000 numbers")):
        small_machine(monkeypatch, most)
        with pytest.raises(UsageError, match=part):
            proximo.train(env=lambda space=space: Wide(space), config="ppo", num_envs=4, num_steps=4, run_dir=tmp_path / "run")


def test_a_batch_of_large_observations(monkeypatch):
    spec = Spec(obs_shape=(84, 84, 4), obs_dtype=np.dtype(np.uint8), action_space=spaces.Discrete(6), observation_space=None)
    small_machine(monkeypatch, 10**9)
    with pytest.raises(UsageError, match=r"num_steps=128 x num_envs=1024 = 131,072 observations of shape \(84, 84, 4\) and 28,258 "
                                         "bytes need 3.7 GB of memory, and this process can have 1.0 GB"):
        check_memory(Config(num_envs=1024), spec, 1024)
    small_machine(monkeypatch, 10**8)
    small_machine(monkeypatch, 10**7)
    with pytest.raises(UsageError, match="28224 x 64 [+] 64 x 64 [+] 64 x 6 = 1,810,816 weights"):
        check_memory(Config(num_envs=1, num_steps=1), spec, 1)


@pytest.mark.parametrize("part", [spaces.Box(0, 255, (64, 48, 3), np.uint8), spaces.Box(-1, 1, (50,), np.float32)])
@pytest.mark.parametrize("other", [spaces.Discrete(3), spaces.Box(-1, 1, (50,), np.float32)])
def test_parts_of_observations_count_as_what_the_network_reads(part, other, monkeypatch):
    """A machine that holds the weights, their gradient and both moments is enough, counted in the network itself. The bytes of
    a row are not inputs of the first layer."""
    space = spaces.Dict({"part": part, "other": other})
    layout, cfg = obs_layout(space), Config(hidden_sizes=(256, 64))
    spec = Spec(obs_shape=(layout.size,), obs_dtype=layout.dtype, action_space=spaces.Discrete(4), observation_space=space)
    small_machine(monkeypatch, 16 * sum(p.numel() for p in assemble(spec, cfg).parameters()))
    assert network_memory(cfg, spec) == []


@pytest.mark.parametrize("space", [spaces.Box(-1, 1, (0,), np.float32), spaces.Box(-1, 1, (3, 0), np.float32), spaces.Dict(),
                                   spaces.Tuple(()), spaces.Dict({"action_mask": spaces.MultiBinary(2)})])
def test_observations_without_a_number(space, tmp_path):
    with pytest.raises(UsageError, match="which has no numbers"):
        proximo.train(env=lambda: Wide(space), run_dir=tmp_path / "run")


class Number(Wide):
    """Observations of shape (): one number."""

    def __init__(self):
        super().__init__(spaces.Box(-1, 1, (), np.float32))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return np.float32(0.5), {}

    def step(self, action):
        self.t += 1
        return np.array(0.5, np.float32), 1.0, self.t == 5, False, {}


def test_an_observation_that_is_one_number_can_be_learned_from(tmp_path):
    proximo.train(env=Number, run_dir=tmp_path / "run", num_envs=2, num_steps=8, num_minibatches=1, update_epochs=1,
                  total_timesteps=32, hidden_sizes=(4,), logger="none")
    assert proximo.load(tmp_path / "run").act(np.float32(0.5)) in (0, 1)


def test_a_process_with_a_limit_knows_it():
    """`ulimit -v`, in a process of its own."""
    program = ("import resource; resource.setrlimit(resource.RLIMIT_AS, (3 << 30, 3 << 30));"
               "from proximo.envs.machine.memory import machine_bytes; print(machine_bytes())")
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300)
    assert found.stdout.strip() == str(min(3 << 30, machine_bytes())), found.stderr


def test_cgroups_of_both_versions_limit_the_memory(tmp_path, monkeypatch):
    """Against files as the kernel has them: the least limit around the process counts, "max" is none."""
    from proximo.envs.machine import memory

    limits = {"fs/memory.max": "max", "fs/user/memory.max": "5000", "fs/user/job/memory.max": "max",
              "fs/memory/a/memory.limit_in_bytes": "7000", "fs/memory/memory.limit_in_bytes": "9223372036854771712"}
    write_cgroups(tmp_path, monkeypatch, "4:memory:/a/b\n3:cpu:/a\n0::/user/job\n", limits)
    assert min(memory._limits()) == 5000
    (tmp_path / "fs/user/memory.max").unlink()
    assert min(memory._limits()) == 7000


def test_what_fits_exactly_is_allowed(monkeypatch):
    small_machine(monkeypatch, 1000)
    assert memory_problem("this", 1000, "") == []
    assert memory_problem("this", 1001, "Use less.") == ["this need 1.0 kB of memory, and this process can have 1.0 kB. Use less."]


def test_a_number_of_hundreds_of_digits_is_cut(monkeypatch):
    small_machine(monkeypatch, 1000)
    sentence, = memory_problem(f"hidden_sizes={10**400}: {10**400:,} weights", 10**400, "Use less.")
    assert sentence.startswith("hidden_sizes=10000000... (401 digits): 10,000,0... (401 digits) weights need ")


def test_memory_that_is_unknown_refuses_nothing(monkeypatch):
    small_machine(monkeypatch, None)
    assert memory_problem("this", 10**30, "") == [] and bytes_text(2_500_000_000) == "2.5 GB"


@pytest.mark.parametrize("error", [MemoryError(), MemoryError("Unable to allocate 745. GiB"), RuntimeError(
    "[enforce fail at alloc_cpu.cpp:121] . DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes.\nmore"),
    RuntimeError("CUDA out of memory. Tried to allocate 2 GiB"), RuntimeError("RESOURCE_EXHAUSTED: Out of memory")])
def test_memory_that_is_full_is_told_in_a_sentence(error, capsys):
    def act():
        raise error

    assert exit_code(act) == 2
    said = capsys.readouterr().err
    assert said.startswith("proximo: The memory is full (") and said.count("\n") == 1


def test_other_errors_are_not_taken_for_a_full_memory():
    def act():
        raise RuntimeError("mat1 and mat2 shapes cannot be multiplied")

    with pytest.raises(RuntimeError, match="mat1"):
        exit_code(act)


@pytest.mark.parametrize("words,part", [(["--seeds", "300000000"], "seeds=300000000"), (["--seeds", "0"], "seeds=0"),
                                        (["--seeds", "-1"], "seeds=-1"), (["--workers", "0"], "workers=0")])
def test_benchmarks_of_too_many_runs(words, part, capsys, tmp_path):
    (tmp_path / "a.toml").write_text('[[run]]\nvariant = "ppo"\nenv_ids = ["CartPole-v1"]\nsteps = 1000\n')
    check_end(end_of(capsys, "bench", tmp_path / "a.toml", *words, "--out", tmp_path / "out"), 2, part)
