"""The programs of docs/deploy.md: the second one runs where neither torch nor proximo can be imported."""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("onnxscript")
pytest.importorskip("onnxruntime")
ALONE = ("import sys\nfor name in ('torch', 'proximo', 'gymnasium', 'onnx', 'safetensors'):\n    sys.modules[name] = None\n"
         "try:\n    import torch\n    raise SystemExit('torch was imported')\nexcept ImportError:\n    pass\n")


def test_the_exported_file_runs_with_onnxruntime_and_numpy_alone(tmp_path, monkeypatch):
    """In a process of its own; the actions are those of the model."""
    page = Path("docs/deploy.md").read_text()
    train, use = re.findall(r"```python\n(.*?)```", page, re.S)
    monkeypatch.chdir(tmp_path)
    names = {}
    exec(train.replace("20_000", "1024"), names)
    found = subprocess.run([sys.executable, "-I", "-c", ALONE + use], capture_output=True, text=True, check=True).stdout
    model, wanted = names["proximo"].load(names["run"]), []
    for t in [*range(5), 4]:
        obs = np.array([[0.01 * t, 0.2, -0.01, 0.1], [-0.01 * t, -0.2, 0.01, -0.1]], np.float32)
        first = np.array([True, False]) if len(wanted) == 5 else None
        wanted.append(" ".join(map(str, model.act(obs, first, deterministic=True))))
    assert found.splitlines() == wanted
