"""benchmarks/peers: every program that is measured has a script and an environment, and versions that docs name."""

import runpy
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PEERS = ROOT / "benchmarks" / "peers"


@pytest.fixture
def tool(monkeypatch):
    monkeypatch.setattr(sys, "path", [str(PEERS), *sys.path])
    return runpy.run_path(str(PEERS / "run.py"))


def test_every_program_has_a_script_and_an_environment(tool):
    measured = {name.partition("-")[0] for scale in tool["SCALE"].values() for name in scale}
    assert all((PEERS / f"{name}_peer.py").exists() for name in measured)
    installed = [name for peers, _ in tool["ENVIRONMENTS"].values() for name in peers]
    assert sorted(installed) == sorted(measured - {"proximo"}) and tool["SCALE"].keys() == tool["REGIMES"].keys()


def test_docs_name_the_versions_that_are_installed(tool):
    said = (ROOT / "docs" / "performance.md").read_text(encoding="utf-8")
    pinned = dict(word.split("==") for _, words in tool["ENVIRONMENTS"].values() for word in words if "==" in word)
    for title, package in {"Stable-Baselines3": "stable-baselines3", "SBX": "sbx-rl", "rejax": "rejax",
                           "Sample Factory": "sample-factory"}.items():
        assert f"{title} {pinned[package]}" in said
