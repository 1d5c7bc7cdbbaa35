"""Attributes of environments that a program has set, for the environments that training makes again."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from proximo.config import Config
from proximo.envs.calls import call_envs
from proximo.envs.state.codes import OpaqueError, decode_value, encode_copy
from proximo.errors import EnvError, UsageError, reading_checkpoint, warn_once
from proximo.protocols import MakeEnvs, VecEnv

SET_ATTRIBUTES = "set_attributes"  # of a snapshot
READING = ("get_wrapper_attr", "has_wrapper_attr")  # a program may change what they return, if it is no copy
UNCHANGEABLE = (bool, int, float, str, np.generic, type(None))  # a program cannot change such a result


class KeptAttributes:
    """The last value of each attribute that `call_envs("set_wrapper_attr", name, value)` has set.

    Args:
        state: The snapshot that training continues from, or None.
    """

    def __init__(self, state: Mapping[str, Any] | None = None) -> None:
        self._kept: dict[str, dict[str, Any]] = {}  # by name, in the order in which they were set last
        with reading_checkpoint():
            for one in (state or {}).get(SET_ATTRIBUTES, ()):
                decode_value(one["value"])
                self._kept[str(one["name"])] = {"value": one["value"], "force": one["force"]}

    def making(self, make_envs: MakeEnvs) -> MakeEnvs:
        """Return make_envs whose environments have these attributes before their first reset.

        The first ones of a process are as they were made: a resume loads their state, or makes them again.
        """
        made = False

        def make(cfg: Config, seeds: list[int]) -> VecEnv:
            nonlocal made
            envs = make_envs(cfg, seeds)
            if made:
                try:
                    self.set_in(envs)
                except BaseException:
                    envs.close()
                    raise
            made = True
            return envs

        return make

    def set_in(self, envs: Any) -> None:
        """Set all attributes in new environments; a warning names those that cannot be set."""
        for name, one in self._kept.items():
            force = {} if one["force"] is None else {"force": one["force"]}
            try:
                call_envs(envs, "set_wrapper_attr", name, decode_value(one["value"]), **force)
            except (EnvError, UsageError) as error:
                warn_once(f"The environments were made again, and do not have the value of {name} that call_envs has "
                          f"set, because it cannot be set before their first reset ({error}). Let __init__ set {name}.")

    def changed(self, name: str, arguments: Sequence[Any], options: Mapping[str, Any], found: Sequence[Any]) -> bool:
        """Note a call of call_envs. Return whether environments that are made again may lack what it has changed.

        Args:
            name: The method that was called.
            arguments: Its arguments.
            options: Its keyword arguments.
            found: Its results.
        """
        if name in READING:
            return not all(isinstance(one, UNCHANGEABLE) for one in found)
        given = dict(zip(("name", "value"), arguments)) | dict(options)
        if name != "set_wrapper_attr" or not {"name", "value"} <= given.keys() or not isinstance(given["name"], str):
            return True
        before = self._kept.pop(given["name"], {"force": None})
        force = bool(given["force"]) if "force" in given else before["force"]
        try:
            self._kept[given["name"]] = {"value": encode_copy(given["value"]), "force": force}
        except OpaqueError:
            return True
        return False

    def added_to(self, snapshot: dict[str, Any]) -> dict[str, Any]:
        """Return a snapshot with these attributes; as it is if there are none."""
        kept = [{"name": name} | one for name, one in self._kept.items()]
        return snapshot | {SET_ATTRIBUTES: kept} if kept else snapshot
