"""Exported files, run with onnxruntime or torch alone, against Model.act with the most likely actions."""

import functools
import json
import subprocess
import sys
import zipfile

import numpy as np
import pytest
import torch
from gymnasium import spaces

from proximo.cli.main import main
from proximo.config import Config
from proximo.envs.gym_source import preprocessing
from proximo.errors import FilesError, UsageError
from proximo.models.export.files import export_model, run_onnx, run_pt2
from proximo.models.export.portable import Portable
from proximo.on_torch.agent import SharedAgent
from proximo.on_torch.assemble import assemble, make_head
from tests.support.models import random_model
from tests.support.probes import Hybrid, Rich

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxscript")
onnxruntime = pytest.importorskip("onnxruntime")
ROWS, STEPS = 10, 100  # 1,000 steps
VECTOR = spaces.Box(np.array([-1, -5, 0], np.float64), np.array([1, 5, 9], np.float64), dtype=np.float64)
ARM = spaces.Box(np.array([[-2, 0]], np.float32), np.array([[2, 0.2]], np.float32))
NUMBER = spaces.Box(-1, 1, (), np.float32)
VECTORS = spaces.Dict({"a": VECTOR, "b": spaces.Tuple([ARM, VECTOR])})
CONTINUOUS = {"variant": "ppo_continuous_action"}  # normalises observations
KINDS = {
    "gaussian": (ARM, VECTOR, CONTINUOUS | {"also": "mean", "clip_obs": 0.5}),
    "squashed parts": (ARM, VECTORS, CONTINUOUS | {"distribution": "squashed", "state_dependent_std": True}),
    "beta flags": (ARM, spaces.Discrete(5, start=2), CONTINUOUS | {"distribution": "beta", "activation": "elu"}),
    "gsde lstm": (ARM, VECTOR, CONTINUOUS | {"distribution": "gsde", "recurrent": "lstm", "layer_norm": True}),
    "rpo critic": (ARM, VECTORS, {"variant": "rpo_continuous_action", "critic_obs": "a"}),
    "multi": (spaces.MultiDiscrete([3, 2], start=[1, 0]), spaces.MultiDiscrete([3, 2]), {"also": "logits"}),
    "hybrid rich gru": (Hybrid.action_space, Rich.observation_space, {"norm_obs": True, "recurrent": "gru",
                                                                      "also": "logits"}),
    "64 bits": (spaces.Discrete(3), spaces.Box(-2**40, 2**40, (2,), np.int64), {"also": "logits"}),
    "atari lstm": (spaces.Discrete(6), None, {"variant": "ppo_atari_lstm", "obs_shape": (1, 36, 36),
                                              "obs_dtype": np.uint8}),
    "scalars": (NUMBER, NUMBER, CONTINUOUS | {"also": "mean", "recurrent": "gru"}),
    "whole scalar": (NUMBER, spaces.Box(-9, 9, (), np.int32), {"distribution": "squashed"}),
    "impala": (spaces.Discrete(3, start=-1), spaces.Box(0, 255, (9, 8, 3), np.uint8), {"model": "impala"}),
}


@pytest.fixture(scope="module", autouse=True)
def operators_once():
    """The exporter reads its table of operators for every file, which takes half of the time."""
    from torch.onnx._internal.exporter import _registration as registration

    with pytest.MonkeyPatch.context() as patch:
        read = functools.cache(registration.ONNXRegistry.from_torchlib)
        patch.setattr(registration.ONNXRegistry, "from_torchlib", staticmethod(lambda **kwargs: read(**kwargs)))
        yield


def by_name(space, root, one):
    """The arrays of an element of a space by the names in a file; a key action_mask is left out."""
    if isinstance(space, spaces.Dict):
        parts = [(key, part, one[key]) for key, part in space.items() if key != "action_mask"]
    elif isinstance(space, spaces.Tuple):
        parts = list(zip(range(9), space, one))
    else:
        return {root: np.asarray(one, space.dtype)}
    return {name: x for key, part, value in parts for name, x in by_name(part, f"{root}.{key}", value).items()}


def stacked(space, root, several):
    rows = [by_name(space, root, one) for one in several]
    return {name: np.stack([row[name] for row in rows]) for name in rows[0]}


def play(model, run, ports):
    """Yield what the file and the model answer at every step of episodes that begin at random."""
    rng, space = np.random.default_rng(1), model.spec.observation_space
    if space is not None:
        space.seed(2)
    state = {port.name: np.zeros((ROWS, *port.shape), np.float32) for port in ports if port.name == "state"}
    masks = {port.name: port.shape for port in ports if port.name == "mask"}
    for t in range(STEPS):
        if space is None:
            raw = rng.integers(0, 256, (ROWS, *model.spec.obs_shape)).astype(np.uint8)
            inputs = {"obs": raw}
        else:
            raw = [space.sample() for _ in range(ROWS)]
            inputs = stacked(space, "obs", raw)
            raw = raw if isinstance(space, (spaces.Dict, spaces.Tuple)) else np.stack(raw)
        mask = rng.random((ROWS, *masks["mask"])) < 0.8 if masks else None
        if mask is not None:
            mask[:, [0, -1]] = True  # of every component something is allowed
            inputs["mask"] = mask
        first = (rng.random(ROWS) < 0.1) | (t == 0)
        inputs |= state | ({"first": first} if state else {})
        found = run({port.name: inputs[port.name] for port in ports})
        state = {"state": found["next_state"]} if state else {}
        wanted = model.act(raw, first, mask, deterministic=True)
        action = model.spec.action_space
        yield found, stacked(action, "action", wanted)


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_acts_as_the_model(kind, tmp_path):
    """Discrete actions are equal, continuous ones within 1e-5; names, shapes and dtypes are those of the spaces."""
    action_space, observation_space, fields = KINDS[kind]
    fields = dict(fields)
    also = fields.pop("also", "")
    model = random_model(action_space, observation_space, **fields)
    exported = export_model(model, tmp_path / "agent.onnx", also=also)
    session = onnxruntime.InferenceSession(tmp_path / "agent.onnx")
    for ports, values in ((exported.inputs, session.get_inputs()), (exported.outputs, session.get_outputs())):
        assert [(port.name, ["N", *port.shape]) for port in ports] == [(one.name, one.shape) for one in values]
    seen = {name: [] for name in by_name(action_space, "action", action_space.sample())}
    for found, wanted in play(model, run_onnx(tmp_path / "agent.onnx"), exported.inputs):
        assert found.keys() - {"next_state", also} == wanted.keys()
        for name, one in wanted.items():
            assert found[name].dtype == one.dtype and found[name].shape == one.shape
            assert np.allclose(found[name], one, rtol=0, atol=1e-5) if one.dtype.kind == "f" else (found[name] == one).all()
            seen[name].append(found[name])
    assert any(len(np.unique(np.concatenate(one), axis=0)) > 1 for one in seen.values())  # not always the same


@pytest.mark.parametrize("kind", ["gsde lstm", "impala"])
def test_a_program_of_torch_acts_as_the_model(kind, tmp_path, monkeypatch):
    """And the archive has no pickle, which is what torch keeps example inputs in."""
    monkeypatch.setattr("tests.models.export.test_files.STEPS", 30)
    action_space, observation_space, fields = KINDS[kind]
    model = random_model(action_space, observation_space, **{name: x for name, x in fields.items() if name != "also"})
    exported = export_model(model, tmp_path / "agent.pt2")
    for found, wanted in play(model, run_pt2(tmp_path / "agent.pt2"), exported.inputs):
        assert all(np.allclose(found[name], one, rtol=0, atol=1e-5) for name, one in wanted.items())
    extra = {"proximo.json": ""}
    torch.export.load(tmp_path / "agent.pt2", extra_files=extra)
    assert json.loads(extra["proximo.json"])["variant"] == model.variant
    with zipfile.ZipFile(tmp_path / "agent.pt2") as archive:
        assert [name for name in archive.namelist() if name.endswith((".pt", ".pkl")) and archive.read(name)] == []


def test_any_number_of_rows(tmp_path):
    """One, and so many that the network of images would change the layout of its memory; what the file says of itself."""
    action_space, observation_space, fields = KINDS["impala"]
    model = random_model(action_space, observation_space, **fields)
    model.export(tmp_path / "agent.onnx", also="logits", mask=False)
    run = run_onnx(tmp_path / "agent.onnx")
    for rows in (1, 40):
        obs = np.random.default_rng(0).integers(0, 256, (rows, 9, 8, 3)).astype(np.uint8)
        found = run({"obs": obs})
        assert (found["action"] == model.act(obs, deterministic=True)).all()
        assert (found["logits"].argmax(-1) - 1 == found["action"]).all()
    about = json.loads(onnxruntime.InferenceSession(tmp_path / "agent.onnx").get_modelmeta().custom_metadata_map["proximo.json"])
    assert about["inputs"] == [{"name": "obs", "shape": ["N", 9, 8, 3], "dtype": "uint8"}]
    assert about["env_id"] == "CartPole-v1" and about["format"] == 1


@pytest.mark.parametrize("ending", ["onnx", "pt2"])
def test_a_file_does_not_check_its_inputs(ending, tmp_path):
    """docs/deploy.md says what it returns for NaN, and for a mask that allows nothing."""
    path, obs = tmp_path / f"agent.{ending}", np.array([[np.nan, 0, 1]])
    run = run_onnx if ending == "onnx" else run_pt2
    random_model(ARM, VECTOR, **CONTINUOUS).export(path)
    assert np.isnan(run(path)({"obs": obs})["action"]).all()
    random_model(spaces.Discrete(3, start=2), VECTOR).export(path)
    for one, allowed in ((obs, True), (np.ones((1, 3)), False)):
        assert run(path)({"obs": one, "mask": np.full((1, 3), allowed)})["action"] == [2]


class Scaled(torch.nn.Module):
    """A network of one's own around another one, which doubles or changes what it sees."""

    recurrent, evaluates_later = False, False

    def __init__(self, agent, change):
        super().__init__()
        self.agent, self.head, self.change = agent, agent.head, change

    def initial_state(self, num_envs, device="cpu"):
        return self.agent.initial_state(num_envs, device)

    def forward(self, obs, mask, first, state):
        return self.agent(self.change(obs), mask, first, state)


CHANGES = {"doubled": lambda obs: 2 * obs, "condition": lambda obs: obs if obs.sum() > 0 else -obs,
           "rows": lambda obs: obs if len(obs) < 8 else -obs, "one row": lambda obs: obs if len(obs) > 1 else -obs, "random": lambda obs: torch.randn_like(obs)}


@pytest.mark.parametrize("change", CHANGES)
def test_a_network_of_ones_own(change, tmp_path, capfd):
    """Exported where one trace can hold it, otherwise refused with a sentence and without a file."""
    model = random_model(spaces.Discrete(4), VECTOR, make_agent=lambda spec, cfg: Scaled(assemble(spec, cfg), CHANGES[change]))
    if change == "doubled":
        model.export(tmp_path / "agent.pt2")
        exported = Portable(model)
        for found, wanted in play(model, run_pt2(tmp_path / "agent.pt2"), exported.inputs):
            assert (found["action"] == wanted["action"]).all()
        return
    with pytest.raises(UsageError, match="cannot be exported|does not act as the model") as refused:
        model.export(tmp_path / "agent.pt2")
    assert list(tmp_path.iterdir()) == [] and capfd.readouterr() == ("", ""), "torch prints the graph of a network that it cannot trace"
    assert ("test_files.py, line" in str(refused.value)) == (change == "condition")


class LastThree(torch.nn.Module):
    """A memory whose state has three axes, the features of the last three steps, and one, a number that counts them."""

    def initial_state(self, num_envs, device="cpu"):
        return torch.zeros(num_envs, 3, 16, device=device), torch.zeros(num_envs, device=device)

    def forward(self, x, first, state):
        last, count = (torch.where(first.view(-1, *[1] * (part.ndim - 1)), 0.0, part) for part in state)
        rows = torch.cat([last[:, 1:], x[:, None]], 1)
        return rows[:, 0] - rows[:, 1] + 2 * rows[:, 2] + count.sin()[:, None], (rows, count + 1)


@pytest.mark.parametrize("ending", ["onnx", "pt2"])
def test_a_state_of_any_shape_is_one_row_of_numbers(ending, tmp_path):
    def make_agent(spec, cfg):
        trunk, head = torch.nn.Linear(3, 16), make_head(lambda size: torch.nn.Linear(16, size), spec.action_space)
        return SharedAgent(trunk, torch.nn.Linear(16, 1), head, LastThree())

    model = random_model(spaces.Discrete(4), VECTOR, make_agent=make_agent)
    model.export(tmp_path / f"agent.{ending}")
    ports = Portable(model).inputs
    assert {port.name: port.shape for port in ports}["state"] == (3 * 16 + 1,)
    run = (run_onnx if ending == "onnx" else run_pt2)(tmp_path / f"agent.{ending}")
    chosen = [found["action"] for found, wanted in play(model, run, ports) if (found["action"] == wanted["action"]).all()]
    assert len(chosen) == STEPS and len(np.unique(chosen)) > 1


def test_an_operation_that_onnx_lacks_is_named(tmp_path, capfd):
    """The first line of torch's message is about the steps of its exporter, with codes of colours."""
    def solved(obs):
        return torch.linalg.solve(torch.eye(obs.shape[1]) + obs[:1].T @ obs[:1], obs.T).T

    model = random_model(spaces.Discrete(4), VECTOR, make_agent=lambda spec, cfg: Scaled(assemble(spec, cfg), solved))
    with pytest.raises(UsageError, match=r"^The network has an operation that ONNX lacks \(.*linalg_solve.*\)\. Use --to pt2\.$"):
        model.export(tmp_path / "agent.onnx")
    assert list(tmp_path.iterdir()) == [] and capfd.readouterr() == ("", "")


@pytest.mark.parametrize("path,fields,words", [
    ("agent.txt", {}, "agent.txt does not end in a format of exported files. Name it .*agent.onnx or .*agent.pt2"),
    ("agent", {"to": "txt"}, "--to txt is not a format of exported files. Use onnx or pt2"),
    ("agent.pt2", {"to": "onnx"}, "does not end in .onnx. Name it"), ("agent.pt2", {"also": "mean"}, "--with mean is not available"),
    ("agent.pt2", {"also": "value"}, "--with value is unknown. Use logits or mean"), ("", {}, "is a folder. Name a file"),
    ("agent.pt2", {"to": np.zeros(2)}, r"--to \[0. 0.\] is not a format"), ("agent.pt2", {"also": np.zeros(2)}, "is unknown"),
    ("agent.pt2", {"mask": "no"}, r"mask='no' is not allowed\. Use True or False")])
def test_arguments_that_cannot_work(path, fields, words, tmp_path):
    with pytest.raises(UsageError, match=words):
        random_model(spaces.Discrete(4), VECTOR).export(tmp_path / path, **fields)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_made(tmp_path):
    """The fault is the one sentence, also where the file of another name was never written."""
    (tmp_path / "file").touch()
    with pytest.raises(FilesError, match="could not be written"):
        export_model(random_model(ARM, VECTOR, **CONTINUOUS), tmp_path / "file" / "agent.pt2")


def test_missing_packages_and_other_spaces(tmp_path, monkeypatch):
    with pytest.raises(UsageError, match="contains a dot. Rename it"):
        random_model(spaces.Discrete(4), spaces.Dict({"a.b": ARM, "a": spaces.Dict({"b": ARM})})).export(tmp_path / "x.pt2")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r'needs onnx, onnxscript, onnxruntime: pip install "proximo\[export\]"'):
        random_model(spaces.Discrete(4), VECTOR).export(tmp_path / "agent.onnx")


def test_the_command(tmp_path, capsys):
    random_model(spaces.Discrete(2), VECTOR, recurrent="gru").save(tmp_path / "model")
    assert main(["export", str(tmp_path / "model"), "--to", "pt2", "--with", "logits", "--no-mask"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        str(tmp_path / "model" / "agent.pt2"), "  inputs: obs (N, 3) float64, state (N, 8) float32, first (N) bool",
        "  outputs: action (N) int64, logits (N, 2) float32, next_state (N, 8) float32"]
    assert main(["export", str(tmp_path / "model"), "--best"]) == 2 and main(["export", str(tmp_path / "none")]) == 2
    said = capsys.readouterr().err
    assert "has no model-best" in said and "is not a run: there is no such folder" in said


def test_a_full_disk_leaves_the_older_file(tmp_path):
    """In a process of its own: a writer of torch that fails would abort this one."""
    random_model(spaces.Discrete(2), VECTOR).save(tmp_path / "model")
    program = ("import sys; from proximo.cli.main import main; from tests.support.full_disk import full_disk\n"
               "words = ['export', sys.argv[1], '--to', 'pt2']\n"
               "assert main(words) == 0\n"
               "with full_disk():\n    code = main(words)\n"
               "sys.exit(code)\n")
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path / "model")], capture_output=True, text=True, timeout=120)
    said = done.stderr.splitlines()[-1]
    assert done.returncode == 5 and "Traceback" not in done.stderr, done.stderr
    assert said.startswith(f"proximo: {tmp_path / 'model' / 'agent.pt2'} could not be written")
    assert run_pt2(tmp_path / "model" / "agent.pt2") and not list((tmp_path / "model").glob(".*"))


def test_a_file_names_what_changes_observations_before_it():
    """Only what differs from none; whoever has the file alone can do the same."""
    plain, images = Config(), Config(resize=24, grayscale=True, frame_stack=2, env_wrappers=("module:Wrapper",))
    assert preprocessing(plain) == {}
    assert preprocessing(images) == {"env_wrappers": ("module:Wrapper",), "grayscale": True, "resize": 24, "frame_stack": 2}
