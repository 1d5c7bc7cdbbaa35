"""The page of a card: Markdown behind the front matter that the Hugging Face Hub reads."""

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from proximo.envs.custom.imports import import_flags
from proximo.facts import facts
from proximo.models.export.ports import obs_changes
from proximo.models.model import Model
from proximo.runs.logs.output import return_text

FOLDER_FLAG = "--run-dir"  # a place on the machine of the author
INIT_FLAG = "--init-from"
RESOLVED = ("env_workers", "threads")  # their defaults become numbers that suit the machine, in every run
LARGE = 1e7  # returns from here on are written with six digits


def number_text(value: float) -> str:
    """Write a return as `proximo eval` does, a large one with six digits."""
    return return_text(value) if abs(value) < LARGE else f"{value:.6g}"


def card_text(model: Model, record: dict[str, Any], run: Mapping[str, Any], pictures: Sequence[str]) -> str:
    """Return README.md.

    Args:
        model: The model.
        record: The content of eval.json.
        run: The content of the run's config.json, {} where there is none.
        pictures: Names of the curve and the video.
    """
    low, high = map(number_text, record["interval"])
    how = "deterministic" if record["deterministic"] else "sampled"
    lines = [front_matter(model, record), f"# {model.cfg.env_id}, {model.variant}", "",
             f"An agent for {model.cfg.env_id}, trained with proximal policy optimization by Proximo.", "",
             f"**Mean return {number_text(record['episodic_return_mean'])}** (95 % interval {low} to {high}) over "
             f"{record['episodes']} episodes with {how} actions, seed {record['seed']}. The standard deviation of "
             f"single episodes is {number_text(record['episodic_return_std'])}. `eval.json` has every episode.", ""]
    lines += [f"![{name}]({name})\n" if not name.endswith(".mp4") else f"[Video]({name})\n" for name in pictures]
    flags = import_flags(model.cfg, elsewhere=True)
    lines += ["## Use", "", "```", "proximo pull hub:USER/NAME agent      # or the path of this folder",
              shlex.join(["proximo", "verify", "agent", *flags]).ljust(37) + " # plays the episodes of the score again",
              shlex.join(["proximo", "watch", "agent", *flags]), "```", ""]
    needed = ", ".join(f"`{name}`" for name in flags[1::2])
    changes = ", ".join(f"{name}={value}" for name, value in obs_changes(model).items())
    after = f" after {changes}" if changes else ""
    lines += [f"The environment needs {needed}, which is not part of the model.", ""] * bool(flags)
    lines += ["```python", "import proximo", "", 'model = proximo.load("agent")',
              f"action = model.act(obs, deterministic=True)    # obs as the environment returns it{after}", "```", "",
              "The folder contains weights and numbers only, no pickle and no code.", "", *training_lines(model, run)]
    return "\n".join(lines) + "\n"


def front_matter(model: Model, record: dict[str, Any]) -> str:
    """Return the front matter: YAML, in which every text is quoted as in JSON."""
    env_id = json.dumps(model.cfg.env_id)
    value = json.dumps(" +/- ".join(number_text(record[f"episodic_return_{name}"]) for name in ("mean", "std")))
    tags = dict.fromkeys([model.cfg.env_id, "ppo", "deep-reinforcement-learning", "reinforcement-learning", "proximo"])
    return "\n".join([
        "---", "library_name: proximo", "pipeline_tag: reinforcement-learning", "tags:",
        *(f"- {json.dumps(tag)}" for tag in tags), "model-index:", f"- name: {json.dumps(model.variant)}", "  results:",
        "  - task:", "      type: reinforcement-learning", "      name: reinforcement-learning", "    dataset:",
        f"      name: {env_id}", f"      type: {env_id}", "    metrics:", "    - type: mean_reward",
        f"      value: {value}", "      name: mean_reward", "      verified: false", "---", ""])


def training_lines(model: Model, run: Mapping[str, Any]) -> list[str]:
    """Return the section about training: command, versions, and the hyper-parameters that differ from the defaults."""
    command, versions = without_folder(run.get("command", "")), run.get("versions", {})
    lines = ["## Training", ""]
    if command:
        lines += ["```", command.replace("`", "'"), "```", ""]
    if versions:
        lines += ["Versions: " + ", ".join(f"{name} {version}" for name, version in versions.items()) + ".", ""]
    kind = type(model.cfg)
    skipped = {name for name, fact in facts(kind).items() if fact.group == "logging"} | {*RESOLVED}
    changed = {name: value for name, value in vars(model.cfg).items()
               if name not in skipped and value != getattr(kind, name, None)}
    return [*lines, f"Hyper-parameters that differ from the defaults of {model.variant}:", "",
            "| hyper-parameter | value |", "|---|---|",
            *(f"| {name} | {_cell(name, value)} |" for name, value in changed.items())]


def _cell(name: str, value: object) -> str:
    """Return a value for a table: of a path, which may be private, only the last part."""
    return (str(value).rpartition("/")[2] if name in ("env_file", "init_from") else str(value)).replace("|", "/")


def without_folder(command: str) -> str:
    """Return a command without --run-dir FOLDER, and its program without folders."""
    try:
        words = shlex.split(command)
    except ValueError:
        return ""
    kept = [word for word, before in zip(words, ["", *words])
            if not word.startswith(FOLDER_FLAG) and before != FOLDER_FLAG]
    short = [re.sub(r"^(--[\w-]+=)?.*/(?=[^/]+\.py(:\w+)?$)", r"\1", word) for word in kept]
    return shlex.join(re.sub(r"^(--init-from=)?/.*/", r"\1", word) if INIT_FLAG in (before, word.partition("=")[0])
                      else word for word, before in zip(short, ["", *short]))
