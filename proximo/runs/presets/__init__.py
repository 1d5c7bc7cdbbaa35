"""Presets: tuned hyper-parameters of environments, read from the TOML files in this folder.

A file has one table per environment, named by its id. `variant`, `source` and `extra` say what is trained, where the
values come from and which pip extra the environment needs; `also` lists other versions of the environment that are
trained with the same values. Every other key is a field of the variant's configuration.
"""

import tomllib
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, NamedTuple

from proximo.errors import UsageError, nearest, one_line

if TYPE_CHECKING:
    from typing import Unpack

    from proximo.config import Config
    from proximo.runs.settings.keywords import PresetFields

DESCRIBING = ("variant", "source", "extra", "also")  # the keys of a table that are no field of the configuration


class Preset(NamedTuple):
    """Tuned hyper-parameters of one environment."""

    env_id: str
    variant: str
    values: dict[str, Any]  # fields of the configuration
    source: str
    extra: str = ""  # the pip extra that the environment needs; empty: none

    @property
    def config(self) -> "Config":
        """Return the configuration of the preset."""
        from proximo.catalog import VARIANTS  # imports every suite; the package itself imports none

        return VARIANTS[self.variant].config(env_id=self.env_id, **self.values)

    @property
    def settings(self) -> list[str]:
        """Return the values as texts such as "gamma=0.99"."""
        return [f"{name}={' '.join(map(str, value)) if isinstance(value, tuple) else value}"
                for name, value in self.values.items()]


@cache
def presets() -> dict[str, Preset]:
    """Return every preset by the id of its environment, in order of the files and their tables."""
    found: dict[str, Preset] = {}
    for file in sorted(files(__name__).iterdir(), key=lambda file: file.name):
        if file.name.endswith(".toml"):
            for env_id, table in tomllib.loads(file.read_text(encoding="utf-8")).items():
                found |= {each: _read_table(each, table) for each in (env_id, *table.get("also", []))}
    return found


def preset(env_id: str, **values: "Unpack[PresetFields]") -> "Config":
    """Return the configuration of a preset, for `proximo.train(proximo.preset("LunarLander-v3"), seed=1)`.

    Args:
        env_id: The id of an environment that has a preset.
        values: Fields of the configuration that replace those of the preset.

    Raises:
        UsageError: There is no preset of this name, or a field is unknown or has a wrong type.
    """
    from proximo.runs.settings.resolve import with_changes

    return with_changes(named_preset(env_id).config, dict(values))


def preset_for(env_id: str) -> Preset | None:
    """Return the preset of an environment, or of the successor of a retired id; None if there is none."""
    if env_id in presets() or ":" in env_id:
        return presets().get(env_id)
    from proximo.envs.gym_ids import current_gym_id

    return presets().get(current_gym_id(env_id))


def named_preset(name: str) -> Preset:
    """Return the preset of this name; UsageError, which says where all of them are listed, if there is none."""
    if not isinstance(name, str) or name not in presets():
        raise UsageError(f"There is no preset {one_line(name)}.{nearest(str(name), presets())} "
                         "`proximo list presets` lists all of them.")
    return presets()[name]


def preset_listing() -> str:
    """Return all presets as text: environment, variant, steps and values."""
    lines = []
    for one in presets().values():
        lines += [f"{one.env_id}  ({one.variant})", f"  {', '.join(one.settings)}", f"  source: {one.source}", ""]
    return "\n".join([*lines, "`proximo train --env-id ID` without a variant uses the preset of the environment. "
                              "`--preset none` trains with the defaults of a variant."])


def _read_table(env_id: str, table: dict[str, Any]) -> Preset:
    values = {name: tuple(value) if isinstance(value, list) else value
              for name, value in table.items() if name not in DESCRIBING}
    return Preset(env_id=env_id, variant=table["variant"], values=values, source=table["source"],
                  extra=table.get("extra", ""))
