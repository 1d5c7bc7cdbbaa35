"""Every pair of {variant, recurrent, mask, engine, framework, processes, policy, precision, collecting} but
(variant, collecting), and every triple {variant, engine, framework}: a run of two iterations has it, or a command that asks
for it ends with exit code 2 and the reason.

`python -m tests.test_combinations` writes docs/combinations.md from the same rows."""

import shlex
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

import pytest
import torch

import proximo
from proximo.catalog import VARIANTS
from proximo.cli.main import main
from proximo.cli.suites import missing
from proximo.models.export.check import check_same_actions
from proximo.models.export.portable import Portable
from proximo.on_torch.precision import has_bf16
from tests.support import covering
from tests.support.models import run_eagerly
from tests.support.torchrun import run_lines_on_two_ranks

DIMENSIONS = {"variant": tuple(VARIANTS), "recurrent": ("none", "lstm", "gru"), "mask": ("no", "yes"),
              "engine": ("gym", "ale", "envpool", "brax", "jax"), "framework": ("torch", "jax"),
              "processes": ("1", "2"), "policy": ("plain", "squashed", "beta", "gsde"),
              "precision": ("float32", "bf16"), "collecting": ("together", "groups", "overlap")}
POLICIES = {"plain": "",
            "squashed": "--distribution squashed --state-dependent-std --log-std-init -1 --activation silu --layer-norm",
            "beta": "--distribution beta --activation elu --anneal-lr cosine",
            "gsde": "--distribution gsde --sde-sample-freq 3 --activation relu --anneal-clip"}
COLLECTING = {"together": "", "groups": "--env-workers 2 --env-groups 2", "overlap": "--overlap"}
TRIPLE = ("variant", "engine", "framework")
ENGINE_DECIDES = ("variant", "collecting")  # about this pair: it is neither run nor refused by itself
PAIRS = [pair for pair in combinations(DIMENSIONS, 2) if pair != ENGINE_DECIDES]
GROUPS = [*PAIRS, TRIPLE]
PAGE = Path("docs/combinations.md")
MASKED = "tests.support.probes:Rich-v0"  # its observations are a Dict with an image
CHANGED_IMAGES = "--grayscale --frame-stack 2"  # of the image in the Dict
XLA = ("ppo_atari_envpool_xla_jax", "ppo_atari_envpool_xla_jax_scan")
BRAX = ("ppo_continuous_action_isaacgym", "ppo_continuous_action_isaacgym_hands")
CONTINUOUS = ("ppo_continuous_action", "rpo_continuous_action")
ALE = ("ppo_atari", "ppo_atari_lstm", "ppo_atari_multigpu")
SELF_PLAY = "ppo_pettingzoo_ma_atari"
ENGINES = {**dict.fromkeys(("ppo", *CONTINUOUS), ("gym", "envpool", "jax")), "compact": ("gym", "ale", "envpool"),
           **dict.fromkeys(ALE, ("ale", "gym", "envpool")), SELF_PLAY: ("ale",), **dict.fromkeys(BRAX, ("brax",)),
           **dict.fromkeys(("ppo_atari_envpool", *XLA, "ppo_procgen"), ("envpool",))}
ANY_ENVIRONMENT = ("ppo", *CONTINUOUS, "compact")  # the variants that a masked environment of one's own suits
SUITES = {"ale": "Atari", "envpool": "EnvPool", "brax": "Brax", "jax": "engine jax", "ppo_procgen": "Procgen",
          SELF_PLAY: "PettingZoo"}
DISCRETE = "Only continuous actions have such a distribution."
GROUPS_ON_TORCH = "Groups of environments run with --framework torch only."
OVERLAP_ON_TORCH = "Rollouts overlap with updates with --framework torch only."
OVERLAP_WITHOUT = "Overlapping rollouts are not supported with {}."
NO_WORKERS = "{} does not step its environments in worker processes."
BF16 = "bfloat16 runs with --framework torch only."
UNKNOWN = "{} does not have this environment."


class Conflict(NamedTuple):
    """Two values that do not go together, the reason, and words that must be in what is said."""

    pair: covering.Combination
    reason: str
    words: tuple[str, ...]


def conflicts(row):
    """Every conflict among the values of a row, or of a part of one."""
    variant, engine, framework, masked = (row.get(name, "") for name in (*TRIPLE, "mask"))
    found = []
    if variant and engine and engine not in ENGINES[variant]:
        known = ", ".join(ENGINES[variant])
        found.append(conflict(row, "variant", "engine", f"Engines of this variant: {known}.",
                              f"engine={engine} is not available in this variant. Use {known} or auto."))
    elif engine == "jax" and framework == "torch":
        found.append(conflict(row, "engine", "framework", "The engine jax runs with --framework jax only.",
                              "engine=jax does not run with framework=torch."))
    if variant in XLA and framework == "torch":
        found.append(conflict(row, "variant", "framework", "This variant runs with --framework jax only.",
                              "framework=torch is not available in this variant. Use jax."))
    if masked == "yes" and variant and variant not in ANY_ENVIRONMENT:
        suite = SUITES.get(variant) or SUITES[ENGINES[variant][0]]
        found.append(conflict(row, "variant", "mask", UNKNOWN.format(suite), MASKED, suite))
    if masked == "yes" and engine in SUITES:
        found.append(conflict(row, "mask", "engine", UNKNOWN.format(SUITES[engine]), MASKED, SUITES[engine]))
    return found + conflicts_of_policies(row) + conflicts_of_precisions(row) + conflicts_of_collecting(row)


def conflicts_of_policies(row):
    """Conflicts of the distributions of continuous actions."""
    policy, found = row.get("policy", "plain"), []
    if row.get("variant") == "rpo_continuous_action" and row.get("mask") == "yes":
        found.append(conflict(row, "variant", "mask", DISCRETE, "This variant has its own distribution of Box actions"))
    if policy == "plain":
        return found
    if row.get("variant") == "rpo_continuous_action":
        found.append(conflict(row, "variant", "policy", "This variant has its own distribution.",
                              "This variant has its own distribution of continuous actions."))
    elif row.get("variant", "ppo") not in (*ANY_ENVIRONMENT, *BRAX):
        found.append(conflict(row, "variant", "policy", DISCRETE, "has no effect"))
    if row.get("mask") == "yes":
        found.append(conflict(row, "mask", "policy", DISCRETE, "has no continuous actions"))
    if row.get("engine") == "ale":
        found.append(conflict(row, "engine", "policy", DISCRETE, "has no effect"))
    return found


def needs_torch(row, dimension, reason, given):
    """Conflicts of a value that JAX does not have: also with what needs JAX, of which it says so."""
    found = []
    if row.get("framework") == "jax":
        found.append(conflict(row, "framework", dimension, reason, f"{given} runs with framework=torch only"))
    if row.get("engine") == "jax":
        found.append(conflict(row, "engine", dimension, reason, "engine=jax does not run with framework=torch"))
    if row.get("variant") in XLA:
        found.append(conflict(row, "variant", dimension, reason, "framework=torch is not available"))
    return found


def conflicts_of_precisions(row):
    """Conflicts of bfloat16."""
    return needs_torch(row, "precision", BF16, "precision=bf16") if row.get("precision") == "bf16" else []


def conflicts_of_collecting(row):
    """Conflicts of groups of environments, which need worker processes and torch, and of overlapping rollouts."""
    found = []
    if row.get("collecting") == "overlap":
        found += needs_torch(row, "collecting", OVERLAP_ON_TORCH, "overlap=True")
        if row.get("recurrent", "none") != "none":
            found.append(conflict(row, "recurrent", "collecting", OVERLAP_WITHOUT.format("a recurrent layer"),
                                  "overlap=True does not"))
        if row.get("processes") == "2":
            found.append(conflict(row, "processes", "collecting", OVERLAP_WITHOUT.format("several processes"),
                                  "overlap=True trains in one process, and 2 were started"))
    if row.get("collecting") == "groups":
        if row.get("framework") == "jax":
            found.append(conflict(row, "framework", "collecting", GROUPS_ON_TORCH, "env_groups=2 runs with framework=torch only"))
        if row.get("engine") in ("envpool", "brax", "jax"):
            found.append(conflict(row, "engine", "collecting", NO_WORKERS.format(SUITES[row["engine"]]), "env_groups=2 "))
        if row.get("variant") in (SELF_PLAY, *BRAX, "ppo_procgen", "ppo_atari_envpool", *XLA):
            suite = SUITES.get(row["variant"]) or SUITES[ENGINES[row["variant"]][0]]
            found.append(conflict(row, "variant", "collecting", NO_WORKERS.format(suite), "env_groups=2 "))
    return found


def conflict(row, one, other, reason, *words):
    return Conflict(((one, row[one]), (other, row[other])), reason, words)


def rows_that_run():
    """Rows without a conflict that cover every group; few of JAX are recurrent or have two processes: both compile long."""
    def cost(row):
        return (row.get("framework") == "jax") * (2 * (row.get("recurrent", "none") != "none")
                                                  + 5 * (row.get("processes", "1") == "2")) + 3 * (
            row.get("collecting") == "groups")

    return covering.covering_rows(DIMENSIONS, GROUPS, lambda row: not conflicts(row), cost)


def rows_that_are_refused():
    """One row for each combination with a conflict, and its conflicts."""
    every = [dict(one) for names in GROUPS if names == TRIPLE or not set(names) <= set(TRIPLE)
             for one in covering.combinations(DIMENSIONS, names)]
    return [(completed(values), conflicts(values)) for values in every if conflicts(values)]


def completed(values):
    """A whole row in which no further engine or framework is refused."""
    row = dict(values)
    for name, choices in DIMENSIONS.items():
        if name not in row:
            row[name] = min(choices, key=lambda value: len(
                [one for one in conflicts(row | {name: value}) if ("mask", "yes") not in one.pair]))
    return {name: row[name] for name in DIMENSIONS}


RUN, REFUSED = rows_that_run(), rows_that_are_refused()


def environment(row):
    """The environment, and what keeps a run small: images of 36 x 36; under JAX a CNN takes long to compile, so one row has one."""
    variant, engine, jax = row["variant"], row["engine"], row["framework"] == "jax"
    if row["mask"] == "yes":
        return f"--env-id {MASKED} {CHANGED_IMAGES if variant in ('ppo', *CONTINUOUS) else ''}"
    if row["policy"] != "plain" and variant in ("ppo", "compact") and engine != "ale":
        return "--env-id Pendulum-v1"
    if variant in (*ALE, "ppo_atari_envpool", *XLA):
        game = "Pong-v5" if engine == "envpool" else "PongNoFrameskip-v4"
        small = "--screen-size 36" if (variant, engine) == ("ppo_atari", "ale") else "--screen-size 36 --model mlp"
        return f"--env-id {game} {small if jax else '--screen-size 36'}"
    if variant == SELF_PLAY:
        return f"--screen-size 36 {'--model mlp' if jax else ''}"
    if variant == "ppo_procgen":
        return "--model mlp" if jax else ""
    if variant == "compact":
        return "--env-id PongNoFrameskip-v4 --model cnn --screen-size 36" if engine == "ale" else "--env-id CartPole-v1"
    return {BRAX: "--env-id fast", CONTINUOUS: "--env-id Pendulum-v1"}.get(
        next((names for names in (BRAX, CONTINUOUS) if variant in names), None), "")


def line(row, folder):
    """The command line of a row: two iterations of 8 steps."""
    envs = 2 * int(row["processes"])
    local = "--local-num-envs 2" if "multigpu" in row["variant"] else ""
    steps = 4 if row["variant"] in XLA else 8  # their loops are compiled as repeated code
    return (f"train {row['variant']} --num-steps {steps} {local} --num-envs {envs} --num-minibatches 2 "
            f"--update-epochs 1 --hidden-sizes 8 8 --memory-size 8 --total-timesteps {2 * steps * envs} --threads 1 "
            f"--logger none --run-dir {folder} --recurrent {row['recurrent']} --engine {row['engine']} "
            f"--framework {row['framework']} {environment(row)} {POLICIES[row['policy']]} --precision {precision(row)} "
            f"{COLLECTING[row['collecting']]} {'--norm-value' if normalises_values(row) else ''}")


def normalises_values(row):
    """Whether a row also has --norm-value, which every combination allows."""
    return row["recurrent"] == "gru" or row["policy"] == "squashed" or row["collecting"] == "groups"


def precision(row):
    """float32 for a row that runs on a processor that would emulate bfloat16."""
    emulated = not conflicts(row) and not has_bf16(torch.device("cpu"))
    return "float32" if emulated else row["precision"]


def name_of(row):
    return "-".join(row.values())


def needs(row):
    """Nothing is imported here: EnvPool must find Qt loaded before it."""
    wanted = [{"ale": "ale_py", "envpool": "envpool", "brax": "brax"}.get(row["engine"], "numpy")]
    wanted += ["multi_agent_ale_py"] * (row["variant"] == SELF_PLAY) + ["flax"] * (row["framework"] == "jax")
    if absent := missing(tuple(wanted)):
        pytest.skip(f"{absent} not installed")


def test_every_pair_and_triple_is_run_or_refused():
    """Against a plain enumeration; nothing is both."""
    run = set().union(*(covering.covered(row, GROUPS) for row in RUN))
    every = {one for names in GROUPS for one in covering.combinations(DIMENSIONS, names)}
    refused = {one for one in every if conflicts(dict(one))}
    assert run | refused == every and not run & refused
    assert refused <= set().union(*(covering.covered(row, GROUPS) for row, _ in REFUSED))


def test_no_row_is_superfluous():
    """A covering array as small as a greedy one is: each row has a combination that no earlier row has."""
    seen = set()
    for row in RUN:
        own = covering.covered(row, GROUPS)
        assert own - seen
        seen |= own
    assert len(RUN) < 75


@pytest.mark.parametrize("row", [row for row in RUN if row["processes"] == "1"], ids=name_of)
def test_what_exists_runs(row, tmp_path):
    needs(row)
    assert main(shlex.split(line(row, tmp_path / "run"))) == 0
    assert (tmp_path / "run" / "summary.json").exists()
    model = proximo.load(tmp_path / "run")
    portable = Portable(model)
    check_same_actions(model, portable, run_eagerly(portable))  # what `proximo export` writes acts as the model


@pytest.mark.parametrize(("row", "reasons"), REFUSED, ids=[name_of(row) for row, _ in REFUSED])
def test_what_cannot_work_says_so(row, reasons, tmp_path, capsys, monkeypatch):
    needs(row)
    if any(("processes", "2") in reason.pair for reason in reasons):
        for name, value in {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "RANK": "0", "LOCAL_RANK": "0"}.items():
            monkeypatch.setenv(name, value)
    assert main(shlex.split(line(row, tmp_path / "run"))) == 2
    said = capsys.readouterr().err
    assert all(word in said for reason in reasons for word in reason.words)
    assert "Traceback" not in said and not (tmp_path / "run").exists()


@pytest.mark.parametrize("framework", DIMENSIONS["framework"])
def test_two_processes(framework, tmp_path):
    """All rows of two processes in one pair of processes, each on a port of its own; both must end well."""
    rows = [row for row in RUN if row["processes"] == "2" and row["framework"] == framework]
    for row in rows:
        needs(row)
    run_lines_on_two_ranks([line(row, tmp_path / name_of(row)) for row in rows], tmp_path)
    assert all((tmp_path / name_of(row) / "summary.json").exists() for row in rows)


def table(one, other, fixed, reasons):
    """A table of two dimensions; `fixed` has the values of others, and new reasons are added to `reasons`."""
    columns = DIMENSIONS[other]
    lines = [f"| {one} \\ {other} | " + " | ".join(columns) + " |", "|---" * (len(columns) + 1) + "|"]
    for x in DIMENSIONS[one]:
        cells = []
        for y in columns:
            found = [one.reason for one in conflicts({one: x, other: y} | fixed)]
            reasons += [reason for reason in found if reason not in reasons]
            cells.append(f"no ({', '.join(str(reasons.index(reason) + 1) for reason in found)})" if found else "yes")
        lines.append(f"| {x} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def page():
    """The text of docs/combinations.md."""
    reasons, parts = [], [
        "# Which features work together\n\nA test trains every combination marked `yes` for two iterations. Every other one is "
        "refused with exit code 2; the\nnumber in the cell is the reason, listed at the end of the page.\n\n"
        "Axes: `recurrent` is --recurrent; `mask` is an environment with action masks; `policy` is --distribution (squashed also\n"
        "with --state-dependent-std); `precision` is --precision; under `collecting`, groups is --env-groups 2 and overlap is\n"
        "--overlap."]
    for framework in DIMENSIONS["framework"]:
        parts.append(f"## variant and engine, with framework {framework}\n\n"
                     + table("variant", "engine", {"framework": framework}, reasons))
    for one, other in PAIRS:
        if not {one, other} <= set(TRIPLE):
            parts.append(f"## {one} and {other}\n\n" + table(one, other, {}, reasons))
    parts.append("## The reasons\n\n" + "\n".join(f"{number}. {reason}" for number, reason in enumerate(reasons, 1)))
    return "\n\n".join(parts) + "\n"


def test_the_page_is_up_to_date():
    assert PAGE.read_text() == page()


if __name__ == "__main__":
    PAGE.write_text(page())
