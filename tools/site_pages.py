"""A hook of mkdocs: the pages of the site that are generated from the package, and links to files outside docs/."""

import ast
import inspect
import re
from collections.abc import Iterator
from contextlib import redirect_stdout, suppress
from importlib import import_module
from io import StringIO
from typing import Any

from mkdocs.structure.files import File, Files

from proximo.catalog import VARIANTS
from proximo.cli.main import COMMANDS, main
from proximo.cli.train_help import FlagHelp, flag_helps
from proximo.config import Config
from proximo.runs.presets import presets

API = {"Training": ("api.train", "api.iterations", "api.resume", "api.sweep"),
       "Trained models": ("runs.trained.load", "runs.trained.evaluate", "runs.trained.watch", "models.model.Model",
                          "models.evaluate.Evaluation", "models.export.files.export_model"),
       "Callbacks": ("callbacks.stop_at", "callbacks.stop_at_evaluation", "callbacks.stop_after",
                     "callbacks.stop_without_improvement",
                     "callbacks.StopTraining"),
       "Configurations": ("config.Config", *(f"variants.{name}" for name in (
           "Atari", "AtariLSTM", "Continuous", "RPO", "Procgen", "SelfPlay", "BatchedSim", "Compact"))),
       "Environments": ("api.check_env", "runs.check.rows.Finding"),
       "Presets": ("runs.presets.preset",),
       "Records": ("types.Iteration", "types.FinishedEpisodes", "types.LossInputs"),
       "Interfaces": ("protocols.Step", "protocols.Episode", "protocols.VecEnv", "protocols.PureEnv", "protocols.Spec",
                      "protocols.Agent", "protocols.Head", "protocols.Distribution"),
       "Pure functions of JAX": ("on_jax.pure_training.make_training", "on_jax.pure_training.Training",
                                 "on_jax.pure_training.StepWithValues", "on_jax.train_step.TrainState",
                                 "on_jax.train_step.Metrics", "envs.func_env.from_func_env"),
       "Another update on torch": ("on_torch.setup.set_up", "on_torch.setup.Setup", "on_torch.learner.Learner"),
       "Another update on JAX": ("on_jax.setup.set_up", "on_jax.learner.Learner", "on_jax.learner.Adam"),
       "Errors": ("errors.UsageError", "errors.EnvError", "errors.NumbersError", "errors.FilesError",
                  "errors.PeerError")}

TEXTS = {"Trained models": ("`load` returns a `Model`, and `evaluate` an `Evaluation`.", ""),
         "Callbacks": ("`proximo.callbacks` has the functions, `proximo` the exception.", ""),
         "Pure functions of JAX": ("[Python](../python.md#pure-functions-of-jax) has a program.", ""),
         "Another update on torch": ("[Another update](../add-a-loss.md#another-update) has programs.", ""),
         "Another update on JAX": ("[Another update with JAX](../add-a-loss.md#another-update-with-jax) has a program.",
                                   ""),
         "Records": ("They are in `proximo.types`.", ""), "Interfaces": ("They are in `proximo.protocols`.", ""),
         "Configurations": ("[Flags](flags.md) explains the fields of all classes.", "")}
SHOWN = ("types.", "protocols.", "runs.check.rows.", "on_jax.pure_training.Training", "on_jax.train_step.",
         "on_torch.setup.Setup", "on_torch.learner.", "on_jax.learner.")  # comments say what each of their fields is
METHODS = ("batch_size", "minibatch_size", "num_iterations", "learning_rate_at", "clip_coef_at",
           "ent_coef_at")  # of Config


def on_files(files: Files, config: Any) -> Files:
    """Add the generated pages."""
    for name, content in (("api", api_page()), ("commands", commands_page()), ("flags", flags_page()),
                          ("presets", presets_page())):
        files.append(File.generated(config, f"reference/{name}.md", content=content))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Turn links to files of the repository that are not pages into plain text: the site does not have them."""
    return re.sub(r"\[([^\]]+)\]\((\.\./[^)]+)\)", r"\1", markdown) if page.file.src_uri.count("/") == 0 else markdown


def api_page() -> str:
    """Return the page of everything that a program imports."""
    lines = ["# Python API", "", "`import proximo` has the functions, configurations and errors; the records and "
             "interfaces are in the modules that are named.", ""]
    for title, names in API.items():
        lines += [f"## {title}", "", *TEXTS.get(title, ()), *map(_entry, names)]
    return "\n".join(lines)


def _entry(name: str) -> str:
    """Return what mkdocstrings reads for one name. Configurations are shown without their fields, records as source."""
    shown = name.startswith(SHOWN)
    fields = name.startswith(("config.", "variants."))
    members = f"      members: {[*METHODS] if name == 'config.Config' else []}\n" * (fields or shown)
    source = f"\n```python\n{_source(name)}\n```\n" * shown
    return f"::: proximo.{name}\n    options:\n      heading_level: 3\n{members}{source}"


def _source(name: str) -> str:
    """Return the source of a class without its docstring, which mkdocstrings shows."""
    module, _, title = name.rpartition(".")
    source = inspect.getsource(getattr(import_module(f"proximo.{module}"), title))
    lines, (docstring, *_) = source.splitlines(), ast.parse(source).body[0].body  # type: ignore[attr-defined]
    return "\n".join([lines[0], *lines[docstring.end_lineno:]]).replace(":\n\n", ":\n", 1)


def commands_page() -> str:
    """Return the page with the help of every command."""
    lines = ["# Commands", "", "What `proximo COMMAND --help` prints. [Flags](flags.md) has all flags of `train`.", ""]
    for name in COMMANDS:
        printed = StringIO()
        with redirect_stdout(printed), suppress(SystemExit):
            main([name, "--help"])
        lines += [f"## {name}", "", "```text", printed.getvalue().strip(), "```", ""]
    return "\n".join(lines)


def flags_page() -> str:
    """Return the tables of all flags: those of every variant by group, then those that each variant adds or changes."""
    lines = ["# Flags", "", "Every hyper-parameter is a flag of `proximo train` and a field of `proximo.Config`: "
             "`--num-envs 8` is `num_envs=8`. Numbers of [implementation details](../details.md) are in the last "
             "column.", ""]
    common = flag_helps(Config)
    for group in dict.fromkeys(one.group for one in common):
        lines += [f"## {group.capitalize()}", "", *_table(one for one in common if one.group == group), ""]
    known = {one.name: one for one in common}
    for name, variant in VARIANTS.items():
        differing = [one for one in flag_helps(variant.config) if known.get(one.name) != one]
        if differing:
            lines += [f"## {name}", "", "What differs from the flags above:", "", *_table(differing), ""]
    return "\n".join(lines)


def presets_page() -> str:
    """Return the table of presets."""
    lines = ["# Presets", "", "`proximo train --env-id ID` without a variant uses the preset of the environment. Flags "
             "replace its values, `--preset none` uses the defaults of a variant.", "",
             "| environment | variant | values | source |", "|---|---|---|---|"]
    for one in presets().values():
        values = ", ".join(f"`{setting}`" for setting in one.settings)
        lines.append(f"| {one.env_id} | {one.variant} | {values} | {one.source} |")
    return "\n".join(lines)


def _table(helps: Any) -> Iterator[str]:
    yield from ("| flag | meaning | default | detail |", "|---|---|---|---|")
    for one in helps:
        yield _row(one)


def _row(one: FlagHelp) -> str:
    cells = (f"`{one.flag}`", one.text.replace("|", "\\|"), f"`{one.default}`" * bool(one.default),
             one.detail)
    return f"| {' | '.join(cells)} |"
