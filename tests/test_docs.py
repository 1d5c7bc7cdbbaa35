"""What README.md and docs/ promise: code that runs, links that lead somewhere, commands that exist."""

import ast
import json
import re
import shlex
import shutil
import sys
import textwrap
import tomllib
from pathlib import Path

import gymnasium
import numpy as np
import psutil
import pytest
import tyro
from scipy.stats import trim_mean

import proximo
from proximo import Config
from proximo.bench.population import KEYS as POPULATION_KEYS
from proximo.bench.population import load_population
from proximo.bench.results import evaluations_of, group_runs, read_runs
from proximo.bench.sets import FILE_KEYS, PRESET_KEYS, RUN_KEYS, load_set
from proximo.bench.tune.search import SEARCH_KEYS, load_search
from proximo.catalog import VARIANTS
from proximo.cli.flags import parse_flags
from proximo.cli.main import command, main
from proximo.cli.sweep_command import SWEEP_HELP
from proximo.envs.jax_control import control_tasks
from proximo.errors import EnvError, NumbersError
from proximo.on_torch.loss import ppo_loss
from proximo.runs.folder.checkpoint import checkpoints
from tests.support.runs import same_weights

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md", *sorted((ROOT / "docs").glob("*.md"))]
RUN_HERE = ("add-a-network", "add-a-loss", "add-an-environment", "batched-environments", "combinatorial", "coming-from",
            "demonstrations", "game-engines", "other-environments", "players", "python", "runs")
OTHER_PROGRAMS = {"diff", "export", "pre-commit", "python3", "ray", "torchrun", "docker"}


def blocks(page: Path, language: str) -> list[str]:
    found = re.findall(r"^ *```(\w*)\n(.*?)^ *```$", page.read_text(), re.S | re.M)
    return [text for name, text in found if name == language]


def indented(page: Path) -> list[str]:
    """Return the indented blocks of a page. Markdown joins those between which there are empty lines only."""
    found = re.findall(r"(?:\A|\n\n)((?:    .*\n|\n)+)", page.read_text())
    return [textwrap.dedent(text) for text in found if text.strip()]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_an_indented_file_of_a_page_is_python_to_its_end(page):
    """A command that stood below it was part of the block, and of what a reader copied."""
    for text in indented(page):
        if re.match(r"# \w+\.py\n", text.lstrip("\n")):
            ast.parse(text)


@pytest.mark.parametrize("name", RUN_HERE)
def test_the_code_of_a_page_runs(name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    for block in blocks(ROOT / "docs" / f"{name}.md", "python"):
        if name == "combinatorial" and "class Knapsack" in block:  # a file that the next program imports
            (tmp_path / "knapsack.py").write_text(block)
        exec(block.replace("20_000", "1024").replace("40_960", "2048"), {"__name__": "page"})
    if name == "add-a-loss":
        assert any("losses/change" in path.read_text() for path in tmp_path.glob("runs/*/metrics.csv"))


def test_the_agent_of_the_page_trades(tmp_path, monkeypatch, capsys):
    """The page of market data from top to bottom: the file is right, and the loop has the net worth of the evaluation."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    page = ROOT / "docs" / "market-data.md"
    prices, market, loop = blocks(page, "python")
    exec(prices, {"__name__": "page"})
    (tmp_path / "market.py").write_text(market)
    words = [shlex.split(line.replace("50000", "1024"))[1:] for line in blocks(page, "")[0].splitlines()]
    assert main(words[0]) == 0 and "WRONG" not in (said := capsys.readouterr().out) and "its state can be saved" in said
    assert main([*words[1], "--total-timesteps", "2048"]) == 0 and main(words[2]) == 0
    told = capsys.readouterr().out.splitlines()[-2:]
    exec(loop, {"__name__": "page"})
    worth, held = map(float, capsys.readouterr().out.split()[-2:])
    assert told == [f"net_worth: {worth:.4g}", f"buy_and_hold: {held:.4g}"]


def test_the_optimizer_of_the_page_keeps_the_weights_before_a_loss_that_is_not_finite():
    """They became NaN, and NumbersError says that they are those before the step."""
    (block,) = (one for one in blocks(ROOT / "docs" / "add-a-loss.md", "python") if "set_up_with_sgd" in one)
    page, kept = {"__name__": "page"}, []
    exec(block.partition("\nrun = proximo.train(")[0], page)

    def infinite(batch, cfg):
        loss, stats = ppo_loss(batch, cfg)
        return loss / (batch.clip_coef > 0.19), stats  # from the second iteration on

    def set_up(*arguments):
        kept.append(page["set_up_with_sgd"](*arguments))
        return kept[0]

    training = proximo.iterations("ppo", anneal_clip="linear", total_timesteps=5120, loss_fn=infinite, set_up=set_up)
    before = next(training).weights()
    with pytest.raises(NumbersError):
        next(training)
    after = dict(kept[0].agent.named_parameters())
    assert all(np.array_equal(x, after[name].detach()) for name, x in before.items())


def test_the_environment_of_the_page_keeps_the_contract(tmp_path, monkeypatch, capsys):
    """Of the file that the page shows, with the commands below it: no fault and no remark, and it is learned."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_env.py").write_text(blocks(ROOT / "docs" / "add-an-environment.md", "python")[0])
    code, said = main(["check-env", "--env-file", "my_env.py"]), capsys.readouterr().out
    findings = [line for line in said.splitlines() if not line.startswith(" ")]  # a slow machine gets advice below one
    assert code == 0 and {line.split()[0] for line in findings} == {"ok"}, said
    words = ["--env-kwargs", "size=7", "--total-timesteps", "4096", "--logger", "none", "--run-dir", "run"]
    assert main(["train", "--env-file", "my_env.py:MyEnv", *words]) == 0
    assert proximo.evaluate("run", episodes=4, allow_import=[str(tmp_path / "my_env.py")]).returns[0] > 0.9


def test_the_environments_of_causes_and_their_baselines(tmp_path, monkeypatch, capsys):
    """The file keeps the contract, its second command has the note that the page shows, and the returns are those of the page."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    page = ROOT / "docs" / "troubleshooting.md"
    cases, baselines = blocks(page, "python")
    (tmp_path / "cases.py").write_text(cases)
    found = []
    for line in blocks(page, "")[0].splitlines():
        assert main(shlex.split(line)[1:]) == 0
        found.append([said for said in capsys.readouterr().out.splitlines() if not said.startswith((" ", "ok "))])
    assert found[0] == [] and [said[:40] for said in found[1]] == ["note  observations are far from 0: 1 of "]
    exec(baselines, {"__name__": "page"})
    returns = [line.split(": ")[1] for line in capsys.readouterr().out.splitlines()]
    assert re.findall(r"-\d+\.\d", page.read_text().partition("This prints ")[2])[:4] == returns
    sys.modules.pop("cases")


def test_the_engine_of_the_page_plays_and_ends(tmp_path, monkeypatch):
    """The two files that the page shows. No engine is left after training, an evaluation, and an error of one."""
    monkeypatch.chdir(tmp_path)
    game, engine = blocks(ROOT / "docs" / "game-engines.md", "python")
    (tmp_path / "game.py").write_text(game)
    (tmp_path / "engine.py").write_text(engine)
    assert main(["train", "--env-file", "game.py", "--num-envs", "2", "--total-timesteps", "2048", "--logger", "none",
                 "--run-dir", "run"]) == 0
    allowed = [str(tmp_path / "game.py")]
    assert proximo.evaluate("run", episodes=4, allow_import=allowed).returns[0] > 0.9
    assert proximo.load("run").predict([0.2]) == 1
    (tmp_path / "engine.py").write_text(engine.replace('"action"', '"nothing"'))
    with pytest.raises(EnvError, match="the engine has closed the connection"):
        proximo.evaluate("run", episodes=4, allow_import=allowed)
    assert not [one for one in psutil.Process().children() if "engine.py" in one.cmdline()]


CRASHING = '''
import gymnasium as gym
from gymnasium.envs.classic_control import CartPoleEnv

class Crashing(CartPoleEnv):
    """Raises in the seventh step, and in every later one."""
    def step(self, action):
        self.age = getattr(self, "age", 0) + 1
        if self.age >= 7:
            raise RuntimeError("the simulator has diverged")
        return super().step(action)

gym.register("Crashing-v0", entry_point="crashing_of_page:Crashing")
'''


@pytest.fixture
def page_of_wrapper(tmp_path, monkeypatch):
    """A folder with the wrapper of docs/runs.md and with an environment whose step() raises."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (block,) = blocks(ROOT / "docs" / "runs.md", "python")
    (tmp_path / "again.py").write_text(block)
    (tmp_path / "crashing_of_page.py").write_text(CRASHING)
    yield
    gymnasium.registry.pop("Crashing-v0", None)
    for name in ("again", "crashing_of_page"):
        sys.modules.pop(name, None)


def test_the_wrapper_of_the_page_catches_what_step_raises(page_of_wrapper, capsys):
    """Without it the run ends, and the message leads to it. The same with workers, and for a resumed run."""
    words = ["ppo", "--env-id", "crashing_of_page:Crashing-v0", "--num-steps", "32", "--logger", "none"]
    assert main(["train", *words, "--run-dir", "without"]) == 3
    said = capsys.readouterr().err
    assert "with the wrapper in docs/runs.md (Environments that crash)" in said.splitlines()[-1], said
    wrapped, allowed = ["--env-wrappers", "again:Again"], ["--allow-import", "crashing_of_page", "--allow-import", "again"]
    for name, flags in (("here", []), ("workers", ["--env-workers", "2", "--restart-envs", "1"])):
        assert main(["train", *words, *wrapped, *flags, "--total-timesteps", "512", "--run-dir", name]) == 0
    assert same_weights("here", "workers")
    assert main(["train", *words, *wrapped, "--total-timesteps", "256", "--no-anneal-lr", "--run-dir", "half"]) == 0
    assert main(["train", *words, *wrapped, "--total-timesteps", "512", "--no-anneal-lr", "--run-dir", "whole"]) == 0
    assert main(["resume", "half", "--total-timesteps", "512", *allowed]) == 0 and same_weights("half", "whole")


def test_the_wrapper_of_the_page_begins_again_in_a_new_environment(page_of_wrapper):
    """The lost step has the observation before it; seeds of new environments differ, and depend on the first seed."""
    def firsts(seed):
        env = __import__("again").Again(gymnasium.make("crashing_of_page:Crashing-v0"))
        made, starts = [], []
        for _ in range(3):
            starts.append(env.reset(seed=seed)[0])
            made.append(env.unwrapped)
            seed, answers = None, [env.step(k % 2) for k in range(7)]
            assert np.array_equal(answers[-1][0], answers[-2][0]) and answers[-1][1:] == (0.0, False, True, {})
            assert not any(answer[3] for answer in answers[:-1])
        assert len({*made}) == 3 and len({start.tobytes() for start in starts}) == 3
        return starts

    assert np.array_equal(firsts(1), firsts(1)) and not np.array_equal(firsts(1), firsts(2))
    env = __import__("again").Again(gymnasium.make("crashing_of_page:Crashing-v0"))
    env.failures = 100
    env.reset(seed=1)
    with pytest.raises(RuntimeError, match="diverged"):
        [env.step(k % 2) for k in range(7)]


def test_the_program_of_a_page_is_a_command(tmp_path, monkeypatch):
    """It trains as `proximo train ppo` does."""
    monkeypatch.chdir(tmp_path)
    (block,) = (one for one in blocks(ROOT / "docs" / "python.md", "python") if "run_program(" in one)
    words = ["--total-timesteps", "1024", "--logger", "none", "--run-dir"]
    monkeypatch.setattr(sys, "argv", ["my_program.py", *words, "program"])
    with pytest.raises(SystemExit) as end:
        exec(block, {"__name__": "__main__"})
    assert end.value.code == 0 and main(["train", "ppo", *words, "command"]) == 0
    assert same_weights("program", "command")


def test_the_code_of_the_readme_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (block,) = blocks(ROOT / "README.md", "python")
    names = {}
    exec(block.replace("100_000", "1024").replace(", compile=True", ""), names)
    assert names["action"] in (0, 1)


def test_the_columns_of_metrics_csv_are_explained(tmp_path):
    """Against the columns of a run. A row such as `eval/...` explains a whole group."""
    folder = proximo.train("ppo", total_timesteps=1024, eval_every=512, eval_episodes=1, logger="none", run_dir=str(tmp_path / "run"))
    page = (ROOT / "docs/runs.md").read_text().partition("## Metrics")[2].partition("\n## ")[0]
    for column in (folder / "metrics.csv").read_text().partition("\n")[0].split(","):
        assert f"`{column}`" in page or f"`{column.partition('/')[0]}/...`" in page, column


def test_the_table_of_variants_has_their_sizes():
    """Against the defaults of each variant."""
    rows = [[cell.strip() for cell in row.strip("|").split("|")] for row in (ROOT / "docs/variants.md").read_text().splitlines() if row.startswith("| `")]
    found = {name: row[3:] for row in rows if len(row) == 6 for name in re.findall(r"`(\w+)`", row[0])}
    for name, variant in VARIANTS.items():
        cfg = variant.config()
        sizes = [f"{cfg.local_num_envs or cfg.num_envs:,} x {cfg.num_steps:,}", f"{cfg.update_epochs} x {cfg.num_minibatches}",
                 f"{cfg.total_timesteps:,}"]
        assert [found[name][0].removesuffix(" for each process"), *found[name][1:]] == sizes, name
    assert len(found) == len(VARIANTS)


@pytest.mark.parametrize("heading,keys", [("key of the file", FILE_KEYS), ("key of a row", {*RUN_KEYS, *PRESET_KEYS})])
def test_the_keys_of_a_benchmark_file_are_explained(heading, keys):
    """Against the keys that its reader takes."""
    table = (ROOT / "docs/scale.md").read_text().partition(f"| {heading} |")[2].partition("\n\n")[0]
    cells = [row.split("|")[1] for row in table.splitlines()[2:]]
    assert {name for cell in cells for name in re.findall(r"[a-z_]+", cell)} == {*keys}


@pytest.mark.parametrize("begin,keys", [("## Hyper-parameter search", SEARCH_KEYS), ("## Population-based training", POPULATION_KEYS)])
def test_the_keys_of_searches_and_populations_are_explained(begin, keys):
    """Against the keys that their readers take."""
    table = (ROOT / "docs/searches.md").read_text().partition(begin)[2].partition("| key | default |")[2].partition("\n\n")[0]
    assert sorted(re.findall(r"^\| `\[?(\w+)\]?` \|", table, re.M)) == sorted(keys)


def test_the_files_of_the_page_of_searches_are_read(tmp_path):
    """With the sizes that the page shows."""
    search, benchmark, population = blocks(ROOT / "docs/searches.md", "toml")
    for name, content in (("search", search), ("benchmark", benchmark), ("population", population)):
        (tmp_path / f"{name}.toml").write_text(content)
    assert load_search(tmp_path / "search.toml").trials == 30
    assert load_population(tmp_path / "population.toml").rounds == 5
    assert [row.label for row in load_set(tmp_path / "benchmark.toml").rows] == ["default", "tuned"]


def test_the_benchmark_file_of_the_page_is_read(tmp_path):
    """Its rows are those that the page names."""
    (content,) = blocks(ROOT / "docs/scale.md", "toml")
    (tmp_path / "two.toml").write_text(content)
    assert [row.env_ids for row in load_set(tmp_path / "two.toml").rows] == [("CartPole-v1", "Acrobot-v1"), ("Pendulum-v1",)]


def test_the_results_of_presets_are_those_of_their_records():
    """Deviation and interquartile mean of docs/results.md against numpy and scipy, from benchmarks/stored/zoo."""
    lines = (ROOT / "docs/results.md").read_text().splitlines()
    for (env_id, _), runs in group_runs(read_runs(ROOT / "benchmarks/stored/zoo")).items():
        name, scores = env_id.split(":")[-1], evaluations_of(runs)
        digits = 0 if abs(scores.mean()) >= 1000 else 1 if abs(scores.mean()) >= 10 else 2
        few = len(scores) < 5
        shown = ", ".join(f"{score:,.{digits}f}" for score in scores) + " |" if few else (
            f"{scores.mean():,.{digits}f} ± {scores.std():,.{digits}f} (")
        row, = [line for line in lines if line.startswith((f"| {name} |", f"| {name}, ")) and f"| {shown}" in line]
        assert few or f"| {trim_mean(scores, 0.25):,.{digits}f} [" in row, row


def test_the_environments_written_in_jax_are_named():
    """On the page of concepts and in the help of the sweep, against the tasks that there are."""
    page = (ROOT / "docs/concepts.md").read_text().partition("## Compilation")[2].partition("\n## ")[0]
    for env_id in control_tasks():
        assert env_id in page and env_id in SWEEP_HELP, env_id


def test_every_page_with_code_is_run_by_a_test():
    """Here, in test_site.py (index), models/export/test_guide.py (deploy) and examples/test_walkthrough_page.py."""
    pages = {page.stem for page in PAGES if re.search(r"^ *```python$", page.read_text(), re.M)}
    assert pages == {*RUN_HERE, "README", "index", "deploy", "walkthrough", "long-episodes", "market-data", "constraints",
                     "troubleshooting"}


def without_the_last_two(run, copy):
    """A copy of a run that was killed after all but two iterations."""
    shutil.copytree(run, copy)
    (copy / "summary.json").unlink()
    for path in checkpoints(copy)[-2:]:
        shutil.rmtree(path)
    return copy


@pytest.mark.parametrize("framework", [{}, {"framework": "jax", "engine": "gym"}], ids=["torch", "jax"])
def test_a_discriminator_survives_a_kill(framework, tmp_path, monkeypatch):
    """The weights of the policy depend on every reward that it has given. The log has its loss."""
    monkeypatch.chdir(tmp_path)
    page, fields = {"__name__": "page"}, {"num_envs": 2, "num_steps": 64, "hidden_sizes": (8,), "logger": "none", **framework}
    exec(blocks(ROOT / "docs" / "demonstrations.md", "python")[1].partition("\njudge = ")[0], page)

    def parts(seed):
        judge = page["Judge"](*page["demos"], seed)
        return {"make_envs": judge.make_envs, "callbacks": [judge]}

    whole = proximo.train("ppo", **parts(1), **fields, total_timesteps=640, checkpoint_every=1, keep_checkpoints=0, run_dir=tmp_path / "whole")
    cut = without_the_last_two(whole, tmp_path / "cut")
    proximo.resume(cut, **parts(2))
    assert same_weights(cut, whole) and "user/judge_loss" in (cut / "metrics.csv").read_text()


def test_the_programs_of_constraints_survive_a_kill(tmp_path, monkeypatch):
    """The multiplier of either program continues: it is the state of a callback, or a buffer of the network."""
    hall, penalty, lagrange = blocks(ROOT / "docs" / "constraints.md", "python")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "hall.py").write_text(hall)
    page = {"__name__": "page"}
    exec(penalty.replace("20_000", "1024").replace("40_960", "2048"), page)
    fields = {"num_steps": 64, "total_timesteps": 2560, "checkpoint_every": 1, "keep_checkpoints": 0, "logger": "none", "num_envs": 8,
              "info_metrics": ["total_cost", "task_return"]}
    whole = proximo.train("ppo", env=page["make_env"], callbacks=[page["Multiplier"](1)], run_dir=tmp_path / "whole", **fields)
    cut = without_the_last_two(whole, tmp_path / "cut")
    proximo.resume(cut, env=page["make_env"], callbacks=[page["Multiplier"](1)])
    assert same_weights(cut, whole)

    def program(*words):
        monkeypatch.setattr(sys, "argv", ["lagrange.py", *map(str, words)])
        gymnasium.registry.pop("Hall-v0", None)
        with pytest.raises(SystemExit) as ended:
            exec(lagrange, {"__name__": "__main__"})
        assert ended.value.code == 0

    whole, cut = tmp_path / "two", tmp_path / "two-cut"
    program("--num-steps", 64, "--total-timesteps", 2560, "--checkpoint-every", 1, "--keep-checkpoints", 0, "--run-dir", whole)
    program("resume", without_the_last_two(whole, cut))
    assert same_weights(cut, whole)
    columns, *rows = [line.split(",") for line in (cut / "metrics.csv").read_text().splitlines()]
    assert len({row[columns.index("charts/multiplier")] for row in rows}) == 5 and "losses/cost_value_loss" in columns
    sys.modules.pop("hall")


def test_the_simulator_of_the_page_trains_and_is_compared_with_the_rule(tmp_path, monkeypatch, capsys):
    """Its command with years of 40 hours, in which an episode ends, and its program."""
    page = ROOT / "docs" / "long-episodes.md"
    office, program = blocks(page, "python")
    (command,) = (line for line in blocks(page, "")[0].replace("\\\n", " ").splitlines() if "train" in line)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "office.py").write_text(office)
    words = command.replace("-workers 4", "-workers 0").replace(" 730 ", " 40 ").replace("12", "1").split()[1:]
    shorter = ["--env-kwargs", "hours=40", "--total-timesteps", "320", "--eval-every", "160", "--logger", "none"]
    assert main([*words, *shorter]) == 0
    said = capsys.readouterr().err
    assert "No episode has ended" not in said and "No evaluation" not in said and "untrained policy" not in said
    exec(program.replace("Office(**", "Office(hours=40, **"), {"__name__": "page"})
    *years, setpoints = capsys.readouterr().out.splitlines()
    assert [tuple(line.split()[:2]) for line in years] == [(w, n) for w in ("cold", "mild", "hot") for n in ("rule", "agent")]
    assert 15 <= json.loads(setpoints)["heating"] <= 22.5 <= json.loads(setpoints)["cooling"] <= 30
    sys.modules.pop("office")


@pytest.mark.parametrize("page", PAGES, ids=[page.name for page in PAGES])
def test_links_lead_to_files(page):
    for target in re.findall(r"\]\(([^)#]+)", page.read_text()):
        assert target.startswith("http") or (page.parent / target).exists(), target


@pytest.mark.parametrize("page", PAGES, ids=[page.name for page in PAGES])
def test_files_that_a_page_names_exist(page):
    """The table of promises named a test by a path that it no longer had."""
    named = re.findall(r"\b(?:tests|tools|examples|benchmarks)/[\w/.-]*\w\.(?:py|toml)\b", page.read_text())
    assert [one for one in named if not (ROOT / one).exists()] == []


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings."""
    titles = re.findall(r"^#+ (.*)$", re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.S | re.M), re.M)
    return {re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", title).strip().lower()) for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=[page.name for page in PAGES])
def test_links_lead_to_headings(page):
    for target, anchor in re.findall(r"\]\(([^)#:]*\.md|)#([^)]+)\)", page.read_text()):
        assert anchor in anchors(page.parent / target if target else page), (target, anchor)


def test_pages_that_the_source_names_exist():
    """Docstrings, comments and messages that send a reader to a page."""
    folders = ("proximo", "benchmarks", "examples", "tools", "tests")
    sources = [path for name in folders for kind in ("py", "toml") for path in (ROOT / name).rglob(f"*.{kind}")]
    named = {(page, path.name) for path in sources for page in re.findall(r"\bdocs/([\w-]+\.md)", path.read_text())}
    assert {one for one in named if not (ROOT / "docs" / one[0]).exists()} == set()


@pytest.mark.parametrize("page", PAGES, ids=[page.name for page in PAGES])
def test_training_commands_parse(page):
    for line in re.findall(r"proximo train ([^`\n|]+)", page.read_text()):
        words = re.sub(r"--(preset|resume) \S+", "", line.split("#")[0]).replace("VARIANT", "ppo").replace("...", "").split()
        variant = words.pop(0) if words and words[0] in VARIANTS else "ppo"
        if "ANY" not in words and not {"--help", "--help-all"} & {*words} and all(not word.startswith("NAME") for word in words):
            parse_flags(VARIANTS[variant].config, [word for word in words if word not in ("...", "\\")])


class ParsedError(BaseException):
    """Stops a command after its words were read."""


def check_command(words, monkeypatch):
    """Give the words of a command to the function that reads them, and stop there; mistakes end the test."""
    name, *rest = words
    if name in ("train", "list", "doctor"):
        return  # test_training_commands_parse
    if name == "resume":
        parse_flags(Config, rest[1:])
        return
    if name == "eject":
        assert rest[0] in VARIANTS
        return
    real = tyro.cli

    def read(*args, **named):
        found = real(*args, **named)
        if isinstance(found, tuple):
            parse_flags(Config, found[1])
        raise ParsedError

    def measured(*args):
        raise ParsedError

    def started(*_, wrong, **__):
        assert not wrong
        raise ParsedError

    with monkeypatch.context() as patch, pytest.raises(ParsedError):
        patch.setattr(tyro, "cli", read)
        patch.setattr("proximo.cli.profile_command.measure_shares", measured)
        patch.setattr("proximo.runs.sweep.start_or_resume", started)
        command(name, rest)


def check_line(line, monkeypatch):
    """Read one line of a shell: commands of proximo, targets of make, programs of the repository, extras of pip."""
    for part in line.partition(" #")[0].partition(" > ")[0].split("&&"):
        program, *words = shlex.split(re.sub(r"^ *[A-Z_]+=\S+ ", "", part))
        if program == "proximo":
            check_command(words, monkeypatch)
        elif program == "make":
            assert re.search(rf"^{words[0]}:", (ROOT / "Makefile").read_text(), re.M), words
        elif program == "python":
            source = (ROOT / words[0]).read_text()
            assert [word for word in words if word.startswith("--") and f'"{word}"' not in source] == []
        elif program.endswith("pip"):
            extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
            for names in re.findall(r"\[(.*?)\]", part):
                assert {*names.split(",")} <= extras.keys()
        else:
            assert program in OTHER_PROGRAMS


@pytest.mark.parametrize("page", PAGES, ids=[page.name for page in PAGES])
def test_lines_of_a_shell_are_commands(page, monkeypatch):
    """All lines of a block without a language whose first line is a command; other blocks are output."""
    for block in blocks(page, ""):
        lines = block.replace("\\\n", "").strip().splitlines()
        if lines[0].split()[0] in {"proximo", "make", "python", "pip", *OTHER_PROGRAMS} and ": " not in lines[0].split("#")[0]:
            for line in lines:
                check_line(line, monkeypatch)


@pytest.mark.parametrize("framework,files,lines", [("on_torch", 8, 935), ("on_jax", 9, 1040)])
def test_one_ppo_step_is_read_in_few_files(framework, files, lines):
    """The files that docs/design.md lists for a framework; their lines may differ by five from those listed."""
    rows = re.findall(r"\| (proximo/\S+\.py) \| (\d+) \|", (ROOT / "docs" / "design.md").read_text())
    listed = {name: int(count) for name, count in rows if "/on_" not in name or f"/{framework}/" in name}
    counts = {name: len((ROOT / name).read_text().splitlines()) for name in listed}
    assert {name: count for name, count in counts.items() if abs(count - listed[name]) > 5} == {}
    assert 6 < len(counts) <= files and sum(counts.values()) <= lines
