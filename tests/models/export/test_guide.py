"""The programs of docs/deploy.md: those of ONNX run where neither torch nor proximo can be imported."""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("onnxscript")
pytest.importorskip("onnxruntime")
TIMES = [*range(5), 4]  # of the observations in the programs
ALONE = ("import sys\nfor name in ('torch', 'proximo', 'gymnasium', 'onnx', 'safetensors'):\n    sys.modules[name] = None\n"
         "try:\n    import torch\n    raise SystemExit('torch was imported')\nexcept ImportError:\n    pass\n")


def programs():
    """The training program, the one of ONNX and the one of PT2."""
    return re.findall(r"```python\n(.*?)```", Path("docs/deploy.md").read_text(), re.S)


@pytest.fixture(scope="module")
def agent(tmp_path_factory):
    """The folder in which the first program has run, and its names."""
    names, train = {}, programs()[0].replace("20_000", "1024")
    folder = tmp_path_factory.mktemp("deploy")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        exec(train, names)
        names["proximo"].load(names["run"]).export("agent.pt2")
    return folder, names


def actions(folder, names, count):
    """What the model does in the programs, one line for each step."""
    model, wanted = names["proximo"].load(folder / names["run"]), []
    for t in TIMES[:count]:
        obs = np.array([[0.01 * t, 0.2, -0.01, 0.1], [-0.01 * t, -0.2, 0.01, -0.1]], np.float32)
        first = np.array([True, False]) if len(wanted) == 5 else None
        wanted.append(" ".join(map(str, model.act(obs, first, deterministic=True))))
    return wanted


def output(program, folder):
    return subprocess.run([sys.executable, "-I", "-c", program], capture_output=True, text=True, check=True,
                          cwd=folder).stdout.splitlines()


def test_the_exported_file_runs_with_onnxruntime_and_numpy_alone(agent):
    """In a process of its own; the actions are those of the model."""
    assert output(ALONE + programs()[1], agent[0]) == actions(*agent, 6)


def test_the_program_of_torch_alone_acts_as_the_model(agent):
    """The actions are those of the model. The order of the inputs, which the page asks for, is needed."""
    alone = "import sys\nfor name in ('proximo', 'gymnasium', 'safetensors'):\n    sys.modules[name] = None\n"
    program = programs()[2]
    reversed_keys = program.replace("module(given)", "module(dict(reversed(given.items())))")
    refused = f"\ntry:\n    exec({reversed_keys!r})\nexcept RuntimeError:\n    print('refused')\n"
    assert output(alone + program + refused, agent[0]) == [*actions(*agent, 5), "refused"]


def test_the_session_of_a_control_loop_is_made(agent):
    assert output(ALONE + programs()[3] + "\nprint(session.get_outputs()[0].name)", agent[0]) == ["action"]
