"""Ahead-of-time compilation against the same function run eagerly, and the cache of compiled functions."""

import copy
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn

from proximo.config import Config
from proximo.envs.arrays.obs_layout import obs_layout, write_rows
from proximo.errors import FilesError, UsageError
from proximo.on_torch.assemble import assemble
from proximo.on_torch.compile import aot_build
from proximo.on_torch.compile.aot import compile_ahead, functional, trace_function, unsupported_reason
from proximo.on_torch.compile.aot_cache import cache_folder, describe_graph, library_key, load_library, store_library
from proximo.on_torch.mlp import ACTIVATIONS, MLP
from tests.support.spec import Spec

needs_compiler = pytest.mark.usefixtures("compiler")


@pytest.fixture(scope="module")
def compiler():
    """Skip the test where functions cannot be compiled. To ask takes 3 s, which no other test should wait for."""
    if (reason := unsupported_reason()) is not None:
        pytest.skip(reason)


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "proximo" / "aot"


def make_step(agent):
    """Make a small minibatch step: gather, masked loss, gradient, finiteness, and all tensors changed in place."""
    def gradient(image, target, valid):
        error = (agent(image.float() / 255).squeeze(-1) - target).square()
        loss = torch.where(valid, error, 0.0).sum() / valid.sum()
        grads = torch.autograd.grad(loss, list(agent.parameters()))
        return torch.cat([grad.reshape(-1) for grad in grads]), loss.detach()

    def step(weights, moment, count, ok, lr, index, image, target, valid, x, y):
        grad, loss = functional(agent, gradient)(weights, image[index], target[index], valid[index])
        good = ok & torch.isfinite(grad.norm())
        new = 0.9 * moment + grad
        moment.copy_(torch.where(good, new, moment))
        weights.copy_(torch.where(good, weights - lr * new / (count + 1), weights))
        count.add_(good)
        ok.copy_(good)
        return torch.stack([loss, grad.norm()]), weights[index] * index, x - y

    return step


def make_example(agent, rows=12):
    """Make the arguments of the step. The last two are the same tensor, and must stay two arguments."""
    generator, same = torch.Generator().manual_seed(3), torch.arange(3.0)
    weights = torch.cat([parameter.detach().reshape(-1) for parameter in agent.parameters()])
    return (weights, torch.zeros_like(weights), torch.tensor(0), torch.tensor(True), torch.tensor(0.1),
            torch.randperm(rows, generator=generator)[:5],
            torch.randint(256, (rows, 3), dtype=torch.uint8, generator=generator),
            torch.randn(rows, generator=generator), torch.rand(rows, generator=generator) > 0.3, same,
            same)


def make_net():
    torch.manual_seed(5)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))


def test_functional_gives_the_gradient_of_the_module():
    """Against backward() of the module itself. Afterwards the module has its own parameters again."""
    agent, x = make_net(), torch.randn(6, 3)
    before = list(agent.parameters())
    twin = copy.deepcopy(agent)
    twin(x).square().sum().backward()
    weights = torch.cat([parameter.detach().reshape(-1) for parameter in agent.parameters()])
    grads = functional(agent, lambda x: torch.autograd.grad(agent(x).square().sum(), list(agent.parameters())))(
        weights, x)
    for grad, parameter in zip(grads, twin.parameters(), strict=True):
        torch.testing.assert_close(grad, parameter.grad)
    assert all(a is b for a, b in zip(before, agent.parameters(), strict=True))


SECOND_PROCESS = """
import torch
from proximo.on_torch.compile.aot import compile_ahead
from proximo.on_torch.assemble import assemble
from proximo.on_torch.mlp import ACTIVATIONS, MLP
from tests.on_torch.compile.test_aot import make_example, make_net, make_step
torch.set_num_threads(1)
agent = make_net()
example = make_example(agent)
print([x.tolist() for x in compile_ahead(make_step(agent), example, "step")(*example)])
"""


@needs_compiler
def test_compiled_step_equals_eager_and_is_kept_in_the_cache(cache, capfd, monkeypatch):
    """Against eager steps up to rounding. A second process finds the library in the cache. A truncated one is built
    again; the build is replaced by one that copies the whole file."""
    agent = make_net()
    step, example = make_step(agent), make_example(agent)
    before = [tensor.clone() for tensor in example]
    compiled = compile_ahead(step, example, "step")
    assert all(torch.equal(a, b) for a, b in zip(example, before, strict=True))
    first = [tensor.tolist() for tensor in compiled(*copy.deepcopy(example))]
    out, err = capfd.readouterr()
    assert out == "" and err.startswith("proximo: compiling step (10 to 70 s once, then cached)\n")
    (file,) = cache.iterdir()
    second = subprocess.run([sys.executable, "-c", SECOND_PROCESS], capture_output=True, text=True, check=True)
    assert second.stdout == f"{first}\n"
    assert second.stderr == "" and list(cache.iterdir()) == [file], "the second process compiled the step again"
    whole = cache.parent / "whole.so"
    file.rename(whole)  # this process has it loaded: it must not be overwritten
    file.write_bytes(whole.read_bytes()[:-1000])
    monkeypatch.setattr(aot_build, "_build", lambda graph, example, folder, key, threads, check: store_library(
        Path(shutil.copy(whole, folder / "new.so")), folder, key))
    rebuilt = compile_ahead(step, example, "step")
    assert "compiling" in capfd.readouterr().err
    check_steps(step, compiled, rebuilt, example)
    assert list(cache.iterdir()) == [file]
    with pytest.raises(UsageError, match="was compiled for"):
        compile_ahead(step, example, "step")(*example[:-1], example[-1].double())


@needs_compiler
@pytest.mark.long
def test_two_builds_are_equal_bit_for_bit(tmp_path, monkeypatch):
    agent = make_net()
    step, example = make_step(agent), make_example(agent)
    compiled = []
    for name in ("one", "other"):
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / name))
        compiled.append(compile_ahead(step, example, "step"))
    check_steps(step, *compiled, example)
    assert len(list(tmp_path.rglob("*.so"))) == 2


def check_steps(step, compiled, rebuilt, example):
    """Run four steps of each on tensors of their own.

    They change in place, among them 0-d, int64 and bool ones. The fourth step is not finite and changes no weights.
    Results stay as they are when the next step is made.
    """
    runs = [[*copy.deepcopy(example)[:-1], torch.ones(3)] for _ in range(3)]
    places, kept = [tensor.data_ptr() for tensor in runs[1]], []
    for turn in range(4):
        if turn == 3:
            for tensors in runs:
                tensors[7].fill_(torch.nan)
        eager, first, second = (call(*tensors) for call, tensors in zip((step, compiled, rebuilt), runs, strict=True))
        kept += zip(eager, first, second, strict=True)
        for a, b, c in (*kept, *zip(*runs, strict=True)):
            torch.testing.assert_close(a, b, equal_nan=True)
            assert a.dtype == b.dtype
            assert torch.equal(b.nan_to_num(), c.nan_to_num())
    assert [tensor.data_ptr() for tensor in runs[1]] == places
    assert runs[1][2] == 3 and not runs[1][3] and runs[1][0].isfinite().all()
    assert not torch.equal(runs[1][0], example[0])


def test_a_function_that_reads_a_value_is_one_sentence(cache):
    """A branch in Python on a tensor's value cannot be compiled. Nothing is left in the cache."""
    with pytest.raises(UsageError, match="torch cannot compile chooser .*Run without --compile"):
        compile_ahead(lambda x: (x if x.sum() > 0 else -x,), (torch.ones(3),), "chooser")
    assert not list(cache.iterdir())


def test_an_intact_library_that_cannot_be_loaded_stays_and_a_damaged_one_is_removed(cache, monkeypatch):
    """It may be of a machine with another C library that shares the home folder."""
    def fail(*args):
        raise RuntimeError("version `GLIBC_2.38' not found")

    for name in ("intact", "damaged"):
        (cache_folder() / "new").write_bytes(b"a library")
        store_library(cache / "new", cache, name)
    (damaged,) = cache.glob("damaged-*")
    damaged.write_bytes(b"a lib")
    monkeypatch.setattr("torch._C._aoti.AOTIModelContainerRunnerCpu", fail)
    assert load_library(cache, "intact") is None and load_library(cache, "damaged") is None
    assert [file.name.partition("-")[0] for file in cache.iterdir()] == ["intact"]


@needs_compiler
def test_few_rows_allocate_nothing_and_are_computed_in_vectors(cache):
    """Acting in four environments: its library does not call torch's allocation or the tanh of single numbers."""
    torch.manual_seed(5)
    net = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 2))
    example = (torch.cat([p.detach().reshape(-1) for p in net.parameters()]), torch.randn(4, 4), torch.zeros(4, 2))
    act = compile_ahead(functional(net, lambda x, out: (out.copy_(net(x)),)), example, "acting")
    act(*example)
    torch.testing.assert_close(example[-1], net(example[1]).detach())
    content = next(cache.glob("*.so")).read_bytes()
    assert b"aoti_torch_delete_tensor_object" in content  # names of functions of torch are in it
    assert b"aoti_torch_empty_strided" not in content and b"tanhf" not in content


@needs_compiler
def test_operators_that_only_torch_has_are_called_by_the_library(cache):
    """weight_norm and linalg.solve have no C++ code of inductor: it was an error of torch at the first call."""
    example = (torch.tensor([[2.0, 0.0], [1.0, 4.0]]), torch.tensor([[2.0], [9.0]]))

    def solve():
        return compile_ahead(lambda a, b: (torch.linalg.solve(a, b) + 1,), example, "solver")

    for _ in range(2):  # built, and from the cache
        torch.testing.assert_close(solve()(*example)[0], torch.tensor([[2.0], [3.0]]))
    calls, = cache.rglob("*.json")
    calls.write_text(calls.read_text().replace("_linalg_solve_ex", "_linalg_det"))
    assert load_library(calls.parent, calls.name.partition("-")[0]) is None
    assert not [*cache.rglob("*.json"), *cache.rglob("*.so")]


def test_the_key_of_a_library_has_the_c_library(monkeypatch):
    """It decides whether the library can be loaded."""
    def key():
        example = (torch.zeros(4),)
        return library_key("mul", example, "")

    found = [key(), key()]
    monkeypatch.setattr(platform, "libc_ver", lambda: ("glibc", "2.99"))
    assert found[0] == found[1] != key()


def test_a_traced_function_is_described_with_its_constants():
    """They are compiled into its library: two functions that differ in a bound of an action are two libraries."""
    def described(bound):
        constant = torch.tensor([0.0, bound])
        return describe_graph(trace_function(lambda x: (constant * x,), (torch.zeros(2),), {}))

    assert described(1.0) == described(1.0) != described(2.0)


@needs_compiler
def test_a_library_of_the_cache_is_found_without_the_compiler_of_torch(tmp_path):
    """To import it takes longer than the rest of such a start. The cache is that of the user, and the settings are those of a test of
    tests/runs/test_set_up.py: what was compiled there is not compiled again."""
    command = [sys.executable, "-c", "import sys; from proximo.cli.main import main; assert main(sys.argv[1:]) == 0; "
               "print('torch._dynamo' in sys.modules)", "train", "--env-id", "CartPole-v1", "--preset", "none", "--compile",
               "--total-timesteps", "64", "--num-envs", "2", "--num-steps", "32", "--num-minibatches", "2", "--hidden-sizes", "8",
               "--logger", "none", "--run-dir"]
    runs = [subprocess.run([*command, str(tmp_path / f"{number}")], capture_output=True, text=True) for number in range(2)]
    assert [run.returncode for run in runs] == [0, 0] and runs[1].stdout.splitlines()[-1] == "False", runs
    assert "compiling" not in runs[1].stderr


def test_a_build_that_fails_in_this_process_is_one_sentence(cache, monkeypatch):
    """Where no process may be forked. The error of torch is named once."""
    def fail(*args):
        raise RuntimeError("no such instruction\nand more")

    monkeypatch.setattr(aot_build, "can_fork", lambda: False)
    monkeypatch.setattr(aot_build, "_build", fail)
    with pytest.raises(UsageError) as found:
        compile_ahead(lambda x: (x + x,), (torch.zeros(3),), "double")
    assert str(found.value) == "torch cannot compile double (no such instruction). Run without --compile."


def test_a_cache_without_programs_is_one_sentence(tmp_path):
    """What dlopen() says of a library on a disk that is mounted with noexec."""
    with pytest.raises(FilesError, match="noexec.* Set XDG_CACHE_HOME to a folder on another disk"), \
            aot_build.one_sentence("acting", tmp_path):
        raise RuntimeError("Error in dlopen: function.so: failed to map segment from shared object")
    with pytest.raises(UsageError, match="torch cannot compile acting .another fault."), \
            aot_build.one_sentence("acting", tmp_path):
        raise RuntimeError("another fault")


def test_a_cache_that_cannot_be_made_is_one_sentence(tmp_path, monkeypatch):
    """A file is where the folder of the cache should be: the message names the environment variable to change."""
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(FilesError, match="XDG_CACHE_HOME"):
        compile_ahead(lambda x: (x + x,), (torch.zeros(3),), "double")


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="files have no owner")
def test_a_cache_that_others_may_write_is_refused(cache, monkeypatch):
    """What is in it is run."""
    assert cache_folder() == cache
    cache.chmod(0o770)
    with pytest.raises(FilesError, match="belongs to another user, or others may write into it. Set XDG_CACHE_HOME"):
        cache_folder()
    cache.chmod(0o755)
    assert cache_folder() == cache
    owner = os.getuid()
    monkeypatch.setattr(os, "getuid", lambda: owner + 1)
    with pytest.raises(FilesError, match="belongs to another user"):
        cache_folder()


def test_no_compiler_is_one_sentence():
    """unsupported_reason in a process that has no C++ compiler."""
    code = "from proximo.on_torch.compile.aot import unsupported_reason; print(unsupported_reason())"
    env = {**os.environ, "CXX": "no-such-compiler"}
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=env)
    assert "C++ compiler" in run.stdout


@needs_compiler
@pytest.mark.long
def test_every_activation_and_distribution_of_continuous_actions_compiles(cache):
    """One network of each activation, with layer norm, and one head of each distribution, in one library: outputs,
    samples, log-probabilities and gradients against the plain ones."""
    torch.manual_seed(4)
    nets = nn.ModuleList(MLP([3, 4, 2], 1.0, activation=name, layer_norm=True) for name in ACTIVATIONS)
    spec = Spec((3,), np.dtype(np.float32), spaces.Box(-0.5, 2.0, (2,)))
    kinds = ({"distribution": "squashed", "state_dependent_std": True}, {"distribution": "beta"}, {"distribution": "gsde"})
    heads = nn.ModuleList(assemble(spec, Config(hidden_sizes=(4,), **fields)).head for fields in kinds)
    noises = [head.noise(torch.Generator().manual_seed(1), 9) for head in heads]
    parts = nn.ModuleList([nets, heads])

    def function(obs, *noises):
        outputs = torch.stack([net(obs) for net in nets])
        dists = [head(obs, None) for head in heads]
        actions = torch.stack([dist.sample(noise) for dist, noise in zip(dists, noises, strict=True)]).detach()
        logprob = torch.stack([dist.logprob(action) for dist, action in zip(dists, actions, strict=True)])
        total = outputs.square().sum() + logprob.sum() + sum(dist.entropy().sum() for dist in dists)
        grads = torch.autograd.grad(total, list(parts.parameters()))
        return outputs.detach(), actions, logprob.detach(), *grads

    obs, weights = torch.randn(9, 3), torch.cat([p.detach().reshape(-1) for p in parts.parameters()])
    compiled = compile_ahead(functional(parts, function), (weights, obs, *noises), "networks and heads")
    for a, b in zip(compiled(weights, obs, *noises), function(obs, *noises), strict=True):
        torch.testing.assert_close(a, b, atol=1e-4, rtol=1e-4)


@needs_compiler
@pytest.mark.long
def test_encoders_and_joint_actions_compile(cache):
    """Packed rows to actions, log-probabilities and gradients in one library, against the plain ones."""
    torch.manual_seed(4)
    space = spaces.Dict({"camera": spaces.Box(0, 255, (8, 9, 1), np.uint8), "kind": spaces.Discrete(3, start=1),
                         "seen": spaces.Box(-1, 1, (2,))})
    actions = spaces.Tuple([spaces.Discrete(3), spaces.Box(-1, 1, (2,)), spaces.MultiBinary(2)])
    layout = obs_layout(space)
    agent = assemble(Spec((layout.size,), layout.dtype, actions, space), Config(hidden_sizes=(4,)))
    noise, rows = agent.head.noise(torch.Generator().manual_seed(1), 9), np.zeros((9, layout.size), np.uint8)
    mask = torch.rand(9, 3) < 0.5
    mask[:, 0] = True
    for row in rows:
        write_rows(layout, space.sample(), row)

    def function(obs, mask, noise):
        dist, value, _ = agent(obs, mask, None, ())
        action = dist.sample(noise)
        logprob = dist.logprob(action)
        total = logprob.sum() + dist.entropy().sum() + value.sum()
        return action, logprob.detach(), *torch.autograd.grad(total, list(agent.parameters()))

    obs, weights = torch.from_numpy(rows), torch.cat([p.detach().reshape(-1) for p in agent.parameters()])
    compiled = compile_ahead(functional(agent, function), (weights, obs, mask, noise), "an agent")
    for a, b in zip(compiled(weights, obs, mask, noise), function(obs, mask, noise), strict=True):
        torch.testing.assert_close(a, b, atol=1e-4, rtol=1e-4)
