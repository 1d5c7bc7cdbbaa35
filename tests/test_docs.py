"""What README.md and docs/ promise: code that runs, links that lead somewhere, commands that exist."""

import re
from pathlib import Path

import pytest

from proximo.catalog import VARIANTS
from proximo.cli.flags import parse_flags

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", page.read_text(), re.S)


@pytest.mark.parametrize("name", ["add-a-network", "add-a-loss", "python"])
def test_the_code_of_a_page_runs(name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for block in blocks(ROOT / "docs" / f"{name}.md", "python"):
        exec(block.replace("20_000", "1024").replace("40_960", "2048"), {"__name__": "page"})
    if name == "add-a-loss":
        assert any("losses/change" in path.read_text() for path in tmp_path.glob("runs/*/metrics.csv"))


def test_the_code_of_the_readme_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (block,) = blocks(ROOT / "README.md", "python")
    names = {"raw_obs": [0.0, 0.1, 0.0, 0.1]}
    exec(block.replace("100_000", "1024").replace(", compile=True", ""), names)
    assert names["action"] in (0, 1)


@pytest.mark.parametrize("page", PAGES, ids=[page.name for page in PAGES])
def test_links_lead_to_files(page):
    for target in re.findall(r"\]\(([^)#]+)", page.read_text()):
        assert target.startswith("http") or (page.parent / target).exists(), target


@pytest.mark.parametrize("page", PAGES, ids=[page.name for page in PAGES])
def test_training_commands_parse(page):
    for line in re.findall(r"proximo train ([^`\n|]+)", page.read_text()):
        words = re.sub(r"--(preset|resume) \S+", "", line.split("#")[0]).replace("VARIANT", "ppo").replace("...", "").split()
        variant = words.pop(0) if words and words[0] in VARIANTS else "ppo"
        if "ANY" not in words and not {"--help", "--help-all"} & {*words} and all(not word.startswith("NAME") for word in words):
            parse_flags(VARIANTS[variant].config, [word for word in words if word not in ("...", "\\")])


@pytest.mark.parametrize("framework,files,lines", [("on_torch", 8, 850), ("on_jax", 9, 1000)])
def test_one_ppo_step_is_read_in_few_files(framework, files, lines):
    """The files that docs/design.md lists for a framework, with the line counts that they have."""
    rows = re.findall(r"\| (proximo/\S+\.py) \| (\d+) \|", (ROOT / "docs" / "design.md").read_text())
    listed = {name: int(count) for name, count in rows if "/on_" not in name or f"/{framework}/" in name}
    counts = {name: len((ROOT / name).read_text().splitlines()) for name in listed}
    assert counts == listed
    assert 6 < len(counts) <= files and sum(counts.values()) <= lines
