"""What is known of the environments of one suite, besides what every set-up shows."""

from dataclasses import replace
from typing import Any, NamedTuple

from proximo.config import Config
from proximo.envs.atari_ids import is_atari, sticky_chance
from proximo.envs.envpool import PoolEnvs, find_pool
from proximo.envs.envpool_ids import import_envpool
from proximo.envs.procgen import procgen_id
from proximo.problems import engine_of
from proximo.variants import Atari, Procgen


class SuiteFacts(NamedTuple):
    """Parts of Facts."""

    results: dict[str, Any]
    fields: dict[str, Any]
    expressions: dict[str, Any]
    written: dict[str, str]


def with_known_task(cfg: Config) -> Config:
    """Return a configuration with the id that its engine uses, and the chance of sticky actions that its id means."""
    if isinstance(cfg, Atari) and is_atari(cfg.env_id):
        cfg = replace(cfg, sticky=sticky_chance(cfg.env_id, cfg.sticky))
    if isinstance(cfg, Procgen):
        all_ids = import_envpool("procgen").list_all_envs()
        return replace(cfg, env_id=procgen_id(cfg.env_id, cfg.distribution_mode, all_ids))
    return replace(cfg, env_id=find_pool(cfg.env_id)[0]) if engine_of(cfg) == "envpool" else cfg


def suite_facts(envs: Any, cfg: Config) -> SuiteFacts:
    """Return what is known of the environments."""
    if isinstance(envs, PoolEnvs):
        return pool_facts(envs, cfg)
    return SuiteFacts(results={}, fields={}, expressions={}, written={})


def pool_facts(envs: PoolEnvs, cfg: Config) -> SuiteFacts:
    """Return what is known of EnvPool's environments; the file uses EnvPool's own ids."""
    _, info = envs.pool.reset()
    return SuiteFacts(
        fields={"final_obs": None}, results={"death_rule": None},
        expressions={"bootstrapped.any()": False, "'terminated' in info": "terminated" in info},
        written={"find_pool": f"{{0}}, {isinstance(cfg, Atari)}", "procgen_id": "{0}"})
