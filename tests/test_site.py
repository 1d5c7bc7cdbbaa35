"""The documentation site: it builds without a warning, loads nothing from a server, and its reference is complete."""

import html
import inspect
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import proximo
from proximo.cli.main import COMMANDS, main
from proximo.config import Config
from proximo.facts import facts
from proximo.protocols import Episode, Spec, Step, VecEnv
from proximo.runs.check.env import Finding
from proximo.runs.presets import presets
from proximo.types import FinishedEpisodes, Iteration, LossInputs

pytest.importorskip("material")
pytest.importorskip("mkdocstrings")
ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """mkdocs.yml is strict: a warning, such as a link that leads nowhere, ends the build with 1."""
    place = tmp_path_factory.mktemp("site")
    words = [sys.executable, "-m", "mkdocs", "build", "--site-dir", str(place)]
    found = subprocess.run(words, cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)}, capture_output=True, text=True)
    assert found.returncode == 0, found.stderr
    return place


def test_every_page_is_in_the_navigation_and_loads_nothing_from_a_server(site):
    pages = {page.relative_to(site).with_suffix(".md").as_posix() for page in site.rglob("*.html")} - {"404.md"}
    nav = set(re.findall(r": (\S+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.M))
    assert pages == nav >= {page.name for page in (ROOT / "docs").glob("*.md")}
    for page in site.rglob("*.html"):
        assert not re.findall(r"<(?:script|img|iframe)[^>]* src=\"?https?:", page.read_text()), page
        assert not re.findall(r"<link[^>]* href=\"?https?:[^>]*stylesheet", page.read_text()), page


def test_the_reference_has_every_flag_preset_and_function(site):
    """Against the fields of the configuration, the presets, and what `import proximo` exports."""
    flags, api = ((site / "reference" / f"{name}.html").read_text() for name in ("flags", "api"))
    assert [name for name in facts(Config) if not re.search(rf"[-\]]{name.replace('_', '-')}\b", flags)] == []
    assert [name for name in presets() if name not in (site / "reference" / "presets.html").read_text()] == []
    public = [name for name in proximo.__all__ if name != "callbacks"]
    public += [name for name, one in vars(proximo.callbacks).items() if name.startswith("stop_")]
    public += ["Iteration", "VecEnv", "Spec", "PureEnv", "learning_rate_at", "clip_coef_at", "ent_coef_at"]  # pages send readers there
    assert [name for name in public if f'.{name}" class="doc' not in api] == []


def test_the_reference_explains_the_fields_of_records_and_interfaces(site):
    """Against the comments of their classes, which mkdocstrings leaves out. Tags of the highlighting are removed."""
    page = html.unescape(re.sub(r"<[^>]+>", "", (site / "reference" / "api.html").read_text()))
    for kind in (Iteration, FinishedEpisodes, LossInputs, Spec, Step, Episode, VecEnv, Finding):
        comments = re.findall(r"^    \w+: .*?  # (.*)$", inspect.getsource(kind), re.M)
        assert comments and [one for one in comments if one not in page] == [], kind


@pytest.mark.parametrize("name", COMMANDS)
def test_the_page_of_commands_has_the_help_of_each(site, name):
    """Every command has its heading and a text that begins with how it is used."""
    page = (site / "reference" / "commands.html").read_text()
    assert re.search(rf'<h2 id="?{name}"?[ >][^<]*<.{{,400}}?usage: proximo {name}\b', page, re.S)


def test_the_commands_and_the_code_of_the_first_page_run(tmp_path, monkeypatch):
    """In the order of the page, with fewer steps."""
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs" / "index.md").read_text()
    lines = re.findall(r"^proximo .*$", page, re.M)
    assert len(lines) == 4
    for line in lines:
        words = line.replace("--episodes 100", "--episodes 2").split()[1:]
        words += ["--total-timesteps", "1024", "--logger", "none"] if words[0] == "train" else []
        words += ["--max-frames", "5"] if words[0] == "watch" else []
        assert main(words) == 0
    (code,) = re.findall(r"```python\n(.*?)```", page, re.S)
    names = {}
    exec(code, names)
    assert names["action"] in (0, 1)
