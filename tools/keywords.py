"""Write the keyword arguments of proximo.train and its like, for type checkers and editors.

    python tools/keywords.py

Names, types and docstrings are those of the configurations of all variants (proximo/config.py, proximo/variants.py).
They are read as text, because some types are wider for type checkers than at run time (proximo/facts.py).
tests/runs/settings/test_keywords.py compares the files with what this program would write.
"""

import ast
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from proximo.catalog import VARIANTS
from proximo.facts import facts_of_all
from proximo.runs.settings.peer_names import NOT_GIVEN

ROOT = Path(__file__).resolve().parents[1]
RUNS = ROOT / "proximo/runs/settings"
PATHS = ("env_file", "init_from", "run_dir")
"""Fields whose value may be a path."""

STEPS = ("eval_every", "total_timesteps")
"""Whole numbers that are usually written as 1e6."""

MODULES = {"collections.abc": ("Collection",), "os": ("PathLike",), "typing": ("Literal", "TypedDict"),
           "proximo.facts": ("Arguments", "Engine", "Framework", "Logger", "Model", "NormAdv", "Recurrent", "Schedule",
                             "Sizes", "Texts")}
"""Where names in the types of fields are imported from."""

ENVS = '''\
"""Keyword arguments of proximo.train about environments and networks, for type checkers and editors only.

Written by tools/keywords.py.
"""

{imports}


class EnvsAndNetworks(TypedDict, total=False):
    """Fields of the configurations in the groups environment and policy, but for env_id."""

{envs}
'''
ALL = '''\
"""The keyword arguments of proximo.train and its like, for type checkers and editors only.

Written by tools/keywords.py.
"""

{imports}
from proximo.protocols import SetUp
from proximo.runs.settings.keywords_envs import EnvsAndNetworks


class _Shared(EnvsAndNetworks, total=False):
{shared}


class PresetFields(_Shared, total=False):
    """What proximo.preset takes: all fields of the configurations, but for env_id."""

{swept}


class Fields(PresetFields, total=False):
    """All fields of the configurations of all variants."""

{env_id}


class TrainArguments(Fields, total=False):
    """What proximo.train takes besides its parameters."""

    set_up: SetUp | None
    """(cfg, make_envs, make_agent, loss_fn, state) -> a proximo.on_torch.setup.Setup"""


class Changes(TrainArguments, total=False):
    """What proximo.resume takes."""

    allow_import: str | PathLike[str] | Collection[str | PathLike[str]]
    """modules and scripts that may be imported because the run names them"""


class SweepFields(_Shared, total=False):
    """What proximo.sweep takes: some fields may have several values."""

{env_id}
{lists}
'''


class Field(NamedTuple):
    """A field as it is written in a configuration."""

    type: str
    docstring: str


def read_fields() -> dict[str, Field]:
    """Return every field of every configuration, as the first class that has it declares it."""
    found: dict[str, Field] = {}
    for name in ("config", "variants"):
        for kind in ast.parse((ROOT / f"proximo/{name}.py").read_text()).body:
            body = kind.body if isinstance(kind, ast.ClassDef) else []
            for node, after in pairwise(body):
                if (isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
                        and isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)):
                    hint = ast.unparse(node.annotation).replace("facts.", "").replace("'", '"')
                    found.setdefault(node.target.id, Field(hint, str(after.value.value)))
    return found


def write_text(template: str, **blocks: str) -> str:
    """Return a file: a template with blocks of fields, and imports of the names that they use."""
    body = template.format(imports="", **blocks)
    used = {node.id for node in ast.walk(ast.parse(body)) if isinstance(node, ast.Name)}
    lines = [f"from {module} import {', '.join(sorted(used & {*names}))}" for module, names in MODULES.items()
             if used & {*names}]
    return template.format(imports="\n".join([*lines[:-1], "", lines[-1]]), **blocks)


def texts() -> dict[Path, str]:
    """Return what the files should contain."""
    known = facts_of_all(variant.config for variant in VARIANTS.values())
    fields = read_fields()
    swept = [name for name, fact in known.items() if fact.sweep or name == "seed"]
    envs = [name for name, fact in known.items() if fact.group in ("environment", "policy") and name != "env_id"]
    shared = [name for name in known if name not in (*swept, *envs, *NOT_GIVEN, "env_id")]

    def block(names: Iterable[str]) -> str:
        rows = []
        for name in names:
            hint, docstring = fields[name]
            hint = f"{hint} | PathLike[str]" if name in PATHS else "float" if name in STEPS else hint
            rows += [f"    {name}: {hint}", f'    """{docstring}"""']
        return "\n".join(rows)

    lists = "\n".join(f"    {name}: {fields[name].type} | Collection[{fields[name].type}]" for name in swept)
    return {RUNS / "keywords_envs.py": write_text(ENVS, envs=block(envs)),
            RUNS / "keywords.py": write_text(ALL, shared=block(shared), swept=block(swept), env_id=block(["env_id"]),
                                             lists=lists)}


if __name__ == "__main__":
    for path, text in texts().items():
        path.write_text(text)
