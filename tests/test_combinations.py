"""Every pair of {variant, memory, mask, engine, framework, processes}: a run of two iterations has it, or it ends with
exit code 2 and a sentence. `python -m tests.test_combinations` writes docs/combinations.md from the same table."""

import itertools
import shlex
from pathlib import Path
from typing import NamedTuple

import pytest

from proximo.catalog import VARIANTS
from proximo.cli.main import main
from proximo.cli.suites import missing
from tests.support.torchrun import play_lines

DIMENSIONS = {"variant": tuple(VARIANTS), "memory": ("none", "lstm", "gru"), "mask": ("no", "yes"),
              "engine": ("gym", "ale", "envpool", "brax", "jax"), "framework": ("torch", "jax"),
              "processes": ("1", "2")}
PAGE = Path("docs/combinations.md")
MASKED, PONG, POOL, PENDULUM = "tests.support.probes:Masked-v0", "PongNoFrameskip-v4", "Pong-v5", "Pendulum-v1"
FLAT = "--model mlp --screen-size 36"  # under JAX a CNN takes long to compile; one row has it
XLA = ("ppo_atari_envpool_xla_jax", "ppo_atari_envpool_xla_jax_scan")
BRAX = ("ppo_continuous_action_isaacgym", "ppo_continuous_action_isaacgym_hands")


class Row(NamedTuple):
    """One run: its values; `words`: the environment and what else the command line needs. Where it cannot work,
    `because` names the two dimensions whose values do not go together, and `sentence` is part of what is said."""

    variant: str
    memory: str = "none"
    mask: str = "no"
    engine: str = "gym"
    framework: str = "torch"
    processes: str = "1"
    words: str = ""
    because: tuple[str, str] = ("", "")
    sentence: str = ""


TORCH = [
    Row("ppo"), Row("ppo", "lstm", "yes"), Row("ppo", "gru", engine="envpool"), Row("ppo", "gru", "yes", processes="2"),
    Row("ppo_continuous_action", mask="yes", processes="2"), Row("ppo_continuous_action", "lstm", words=PENDULUM),
    Row("ppo_continuous_action", "gru", engine="envpool", words=PENDULUM),
    Row("rpo_continuous_action", mask="yes"), Row("rpo_continuous_action", "lstm", processes="2", words=PENDULUM),
    Row("rpo_continuous_action", "gru", engine="envpool", words=PENDULUM),
    Row("ppo_atari", engine="ale", words=PONG), Row("ppo_atari", "lstm", words=PONG),
    Row("ppo_atari", "gru", engine="envpool", processes="2", words=POOL),
    Row("ppo_atari_lstm", "lstm", engine="ale", processes="2", words=PONG), Row("ppo_atari_lstm", words=PONG),
    Row("ppo_atari_lstm", "gru", engine="envpool", words=POOL),
    Row("ppo_atari_multigpu", engine="ale", processes="2", words=PONG), Row("ppo_atari_multigpu", "gru", words=PONG),
    Row("ppo_atari_multigpu", "lstm", engine="envpool", words=POOL),
    Row("ppo_atari_envpool", engine="envpool", processes="2", words=POOL),
    Row("ppo_atari_envpool", "lstm", engine="envpool", words=POOL),
    Row("ppo_atari_envpool", "gru", engine="envpool", words=POOL),
    Row("ppo_procgen", engine="envpool", processes="2"), Row("ppo_procgen", "lstm", engine="envpool"),
    Row("ppo_procgen", "gru", engine="envpool"), Row("ppo_pettingzoo_ma_atari", engine="ale", processes="2"),
    Row("ppo_pettingzoo_ma_atari", "lstm", engine="ale"), Row("ppo_pettingzoo_ma_atari", "gru", engine="ale"),
    *(Row(variant, engine="brax", processes="2", words="fast") for variant in BRAX),
    *(Row(variant, memory, engine="brax", words="fast") for variant in BRAX for memory in ("lstm", "gru")),
    Row("compact", words="CartPole-v1"), Row("compact", mask="yes", processes="2"),
    Row("compact", "lstm", engine="ale", words=f"{PONG} --model cnn"),
    Row("compact", "gru", engine="envpool", words=f"{POOL} --model cnn"),
]
JAX = [row._replace(framework="jax") for row in (
    Row("ppo"), Row("ppo", "lstm", "yes"), Row("ppo", "gru", engine="jax"), Row("ppo", "lstm", engine="jax"),
    Row("ppo", engine="jax", processes="2"), Row("ppo", mask="yes", processes="2"),
    *(Row(variant, engine="envpool", processes="2", words=f"{POOL} {FLAT} --num-steps 4") for variant in XLA),
    Row("ppo_continuous_action", engine="jax", words=PENDULUM),
    Row("rpo_continuous_action", engine="jax", words=PENDULUM),
    Row("ppo_atari", engine="ale", words=f"{PONG} --screen-size 36"),
    Row("ppo_atari_lstm", "lstm", words=f"{PONG} {FLAT}"),
    Row("ppo_atari_multigpu", engine="ale", words=f"{PONG} {FLAT}"),
    Row("ppo_atari_envpool", engine="envpool", words=f"{POOL} {FLAT}"),
    *(Row(variant, memory, engine="envpool", words=f"{POOL} {FLAT} --num-steps 4")
      for variant in XLA for memory in DIMENSIONS["memory"]),
    Row("ppo_procgen", engine="envpool", words="starpilot --model mlp"),
    Row("ppo_pettingzoo_ma_atari", engine="ale", words=f"pong_v3 {FLAT}"),
    *(Row(variant, engine="brax", words="fast") for variant in BRAX), Row("compact", words="CartPole-v1"))]


ENGINE = {"ppo": "does not step", "compact": "does not step",
          "ppo_continuous_action": "has no MuJoCo; use gym or envpool",
          "rpo_continuous_action": "has no MuJoCo; use gym or envpool", "ppo_procgen": "has no Procgen; use envpool",
          **dict.fromkeys(("ppo_atari", "ppo_atari_lstm", "ppo_atari_multigpu"),
                          "has no Atari games; use auto, ale or envpool"),
          **{variant: f"is not what {variant} is for" for variant in ("ppo_atari_envpool", *XLA)},
          "ppo_pettingzoo_ma_atari": "does not play games of several players; use ale",
          **dict.fromkeys(BRAX, "has no batched simulation; use brax")}
UNKNOWN = {"ale": "is not the name of an Atari game", "envpool": "is unknown to EnvPool", "brax": "is unknown to Brax"}


def refused():
    """What cannot work, and what is said."""
    never = {"ppo": ("ale", "brax"), "compact": ("brax", "jax"), "ppo_continuous_action": ("ale", "brax"),
             "rpo_continuous_action": ("ale", "brax"), "ppo_atari": ("brax", "jax"), "ppo_atari_lstm": ("brax", "jax"),
             "ppo_atari_multigpu": ("brax", "jax")}
    own = {"ppo_atari_envpool": "envpool", "ppo_procgen": "envpool", "ppo_pettingzoo_ma_atari": "ale",
           **dict.fromkeys(XLA, "envpool"), **dict.fromkeys(BRAX, "brax")}
    for variant, engine in own.items():
        never[variant] = tuple(name for name in DIMENSIONS["engine"] if name != engine)
    for variant, engines in never.items():
        words = PENDULUM if "continuous_action" in variant else PONG if "atari" in variant else ""
        framework = "jax" if variant in XLA else "torch"
        for engine in engines:
            yield Row(variant, engine=engine, framework=framework, words="" if variant in own else words,
                      because=("variant", "engine"), sentence=f"engine={engine} {ENGINE[variant]}")
    for variant in ("ppo_atari", "ppo_atari_lstm", "ppo_atari_multigpu", *own):
        engine = own.get(variant, "ale")
        said = {"ppo_procgen": "is no game of Procgen", "ppo_pettingzoo_ma_atari": "is no game of PettingZoo"}
        yield Row(variant, mask="yes", engine=engine, framework="jax" if variant in XLA else "torch",
                  because=("variant", "mask"), sentence=f"{MASKED} {said.get(variant, UNKNOWN[engine])}")
    for variant, engine in (("ppo", "envpool"), ("ppo_atari", "ale"), (BRAX[0], "brax")):
        yield Row(variant, mask="yes", engine=engine, because=("mask", "engine"),
                  sentence=f"{MASKED} {UNKNOWN[engine]}")
    yield Row("ppo", mask="yes", engine="jax", framework="jax", because=("mask", "engine"),
              sentence=f"--engine jax has no {MASKED}")
    yield Row("ppo", engine="jax", because=("engine", "framework"), sentence="engine=jax does not step")
    for variant in XLA:
        yield Row(variant, because=("variant", "framework"), sentence=f"{variant} exists under --framework jax only")


REFUSED = list(refused())


def line(row, folder):
    """The command line of a row: two iterations of 8 steps."""
    envs = 2 * int(row.processes)
    env_id, _, more = (MASKED if row.mask == "yes" else row.words).partition(" ")
    rows = f"--local-num-envs 2 --num-envs {envs}" if "multigpu" in row.variant else f"--num-envs {envs}"
    return (f"train {row.variant} --num-steps 8 {rows} --num-minibatches 2 --update-epochs 1 --hidden-size 8 "
            f"--memory-size 8 --total-timesteps {16 * envs} --threads 1 --logger none --run-dir {folder} "
            f"--recurrent {row.memory} --engine {row.engine} --framework {row.framework} "
            f"{f'--env-id {env_id}' if env_id else ''} {more}")


def name_of(row):
    return "-".join(value for value in row[:6])


def pairs(row):
    """Its values, two dimensions at a time."""
    return set(itertools.combinations(zip(DIMENSIONS, row[:6]), 2))


def needs(row):
    """Nothing is imported here: EnvPool must find Qt loaded before it."""
    wanted = [{"ale": "ale_py", "envpool": "envpool", "brax": "brax"}.get(row.engine, "numpy")]
    wanted += ["multi_agent_ale_py"] * ("pettingzoo" in row.variant) + ["flax"] * (row.framework == "jax")
    if absent := missing(tuple(wanted)):
        pytest.skip(f"{absent} not installed")


def test_every_pair_is_run_or_refused():
    run = set().union(*map(pairs, TORCH + JAX))
    refusals = {pair for row in REFUSED for pair in pairs(row) if tuple(name for name, _ in pair) == row.because}
    every = {pair for one, other in itertools.combinations(DIMENSIONS, 2)
             for pair in (((one, x), (other, y)) for x in DIMENSIONS[one] for y in DIMENSIONS[other])}
    assert run | refusals == every and not run & refusals


@pytest.mark.parametrize("row", [row for row in TORCH + JAX if row.processes == "1"], ids=name_of)
def test_what_exists_runs(row, tmp_path):
    needs(row)
    assert main(shlex.split(line(row, tmp_path / "run"))) == 0
    assert (tmp_path / "run" / "summary.json").exists()


@pytest.mark.parametrize("row", REFUSED, ids=name_of)
def test_what_cannot_work_says_so(row, tmp_path, capsys, monkeypatch):
    needs(row)
    if row.processes != "1":
        monkeypatch.setenv("WORLD_SIZE", row.processes)
    assert main(shlex.split(line(row, tmp_path / "run"))) == 2
    said = capsys.readouterr().err
    assert row.sentence in said and "Traceback" not in said and not (tmp_path / "run").exists()


@pytest.mark.parametrize("every", [TORCH, JAX], ids=["torch", "jax"])
def test_two_processes(every, tmp_path):
    """All rows of two processes in one pair of processes, each on a port of its own; both must end well."""
    rows = [row for row in every if row.processes == "2"]
    for row in rows:
        needs(row)
    play_lines([line(row, tmp_path / name_of(row)) for row in rows], tmp_path)
    assert all((tmp_path / name_of(row) / "summary.json").exists() for row in rows)


def page():
    """The text of docs/combinations.md."""
    notes, parts = [], [
        "# What goes together\n\nA test runs every pair of values marked `yes` for two iterations, and sees every "
        "other\npair end with exit code 2 and the sentence whose number stands there.\n"
        "Written by `python -m tests.test_combinations`."]
    run = set().union(*map(pairs, TORCH + JAX))
    why = {pair: row for row in REFUSED for pair in pairs(row) if tuple(name for name, _ in pair) == row.because}
    for one, other in itertools.combinations(DIMENSIONS, 2):
        columns = DIMENSIONS[other]
        table = [f"| {one} \\ {other} | " + " | ".join(columns) + " |", "|---" * (len(columns) + 1) + "|"]
        for x in DIMENSIONS[one]:
            cells = []
            for y in DIMENSIONS[other]:
                pair = ((one, x), (other, y))
                if pair not in run and why[pair].sentence.strip() not in notes:
                    notes.append(why[pair].sentence.strip())
                cells.append("yes" if pair in run else f"no ({notes.index(why[pair].sentence.strip()) + 1})")
            table.append(f"| {x} | " + " | ".join(cells) + " |")
        parts.append(f"## {one} and {other}\n\n" + "\n".join(table))
    parts.append("## The sentences\n\nEach is part of what is said, for the values at hand:\n\n" + "\n".join(
        f"{number}. `{note} ...`" for number, note in enumerate(notes, 1)))
    return "\n\n".join(parts) + "\n"


def test_the_page_is_up_to_date():
    assert PAGE.read_text() == page()


if __name__ == "__main__":
    PAGE.write_text(page())
