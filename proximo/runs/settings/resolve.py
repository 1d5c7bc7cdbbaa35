"""Fill in the values that the flags leave open, and find every reason why a run cannot work, before it starts."""

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, fields, replace
from functools import partial
from pathlib import Path
from typing import Any

from proximo.catalog import Parts, variants_with
from proximo.config import Config
from proximo.envs.gym_source import ENV_FIELDS, IMAGES, source_problems
from proximo.envs.machine.cores import default_threads, usable_cores
from proximo.envs.normalize import make_normalizer
from proximo.errors import UsageError, nearest, notify, one_line, warn
from proximo.facts import facts, range_problems, type_problems
from proximo.problems import DEVICE, config_problems, engine_of
from proximo.runs.settings.choice import played_env
from proximo.runs.settings.peer_names import ADVICE, NOT_GIVEN

SHIFT_GIVEN = "iteration_shift={} was given. A resume that changes num_envs sets it. Leave it out."
SCHEDULE = ("{0} is {1}. Use a number, and for a schedule of your own a configuration with the method "
            "{0}_at(self, iteration) (docs/python.md).")


def resolve(cfg: Config, variant: str, processes: int, local_processes: int, custom_env: bool = False,
            members: int = 0) -> Config:
    """Fill in what the defaults leave open, so that config.json has the values that were used.

    Args:
        cfg: The configuration as given.
        variant: Its name in the table of variants.
        processes: Processes of the run, on all machines.
        local_processes: Processes on this machine.
        custom_env: Whether a program passes the environments, so that `env_id` is only their name.
        members: Number of runs of a sweep; without one, cfg.num_seeds runs are trained at once.

    Raises:
        UsageError: A value has a type that its field does not allow.
    """
    if wrong := type_problems(cfg):
        raise UsageError("\n".join(wrong))
    if cfg.iteration_shift:
        raise UsageError(SHIFT_GIVEN.format(cfg.iteration_shift))
    cfg = replace(cfg, **whole_paths({"env_file": cfg.env_file, "init_from": cfg.init_from})).resolved()
    changes: dict[str, Any] = {} if custom_env else dict(played_env(cfg))
    if not cfg.exp_name:
        changes["exp_name"] = variant
    if not cfg.threads:
        changes["threads"] = default_threads(cfg, local_processes, members or cfg.num_seeds)
    if cfg.track and cfg.logger in ("console", "none"):
        changes["logger"] = "wandb"
    if cfg.local_num_envs is not None:
        changes["num_envs"] = cfg.local_num_envs * processes
    if cfg.scale_envs > 1:
        changes |= scaled_sizes(replace(cfg, **changes))
    if cfg.framework == "jax" and cfg.compile:
        warn("--compile has no effect: JAX compiles everything.")
        changes["compile"] = False
    if cfg.framework == "jax" and cfg.backend != "gloo":
        warn(f"--backend {cfg.backend} has no effect: JAX uses gloo on CPUs and NCCL on GPUs.")
    if cfg.env_workers is None:
        changes["env_workers"] = default_workers(cfg, changes.get("num_envs", cfg.num_envs) // processes,
                                                 local_processes)
    return replace(cfg, **changes)


def whole_paths(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return values of fields with the home folder for ~ in env_file and init_from, and the latter as absolute path.

    Raises:
        UsageError: init_from is a model.
    """
    if hasattr(values.get("init_from"), "save"):
        raise UsageError("init_from is a model. Give the folder of a run or a model: that of the run which was loaded, "
                         "or one that model.save(FOLDER) has written.")
    paths = {name: os.path.expanduser(values[name]) for name in ("env_file", "init_from")
             if isinstance(values.get(name), (str, os.PathLike)) and os.fspath(values[name])}
    if "init_from" in paths:
        paths["init_from"] = str(Path(paths["init_from"]).absolute())
    return {**values, **paths}


def scaled_sizes(cfg: Config) -> dict[str, Any]:
    """Return the sizes with cfg.scale_envs applied, and scale_envs=1.

    Minibatch size and learning rate stay: an epoch has more minibatches (Beukman et al. 2026, arXiv 2603.06009).
    """
    by = cfg.scale_envs
    sizes = {"num_envs": cfg.num_envs * by, "num_minibatches": cfg.num_minibatches * by}
    if cfg.local_num_envs is not None:
        sizes["local_num_envs"] = cfg.local_num_envs * by
    notify(f"scale_envs={by}: {', '.join(f'{name} {getattr(cfg, name)} -> {x}' for name, x in sizes.items())}")
    return {**sizes, "scale_envs": 1}


def with_changes(cfg: Config, changes: dict[str, Any]) -> Config:
    """Return a configuration with other values of some fields, checked.

    Raises:
        UsageError: The variant does not have a field, or a value has a type that its field does not allow.
    """
    known, changes = facts(cfg), whole_paths(changes)
    offered = [name for name in known if name not in NOT_GIVEN]
    if changes.get("eval_every") == 0:  # of a run that is resumed without its evaluations
        changes = {"eval_env_kwargs": ()} | changes
    wrong = [f"{one_line(name)} is not a field of this variant."
             f"{ADVICE.get(name) or variants_with(name) or nearest(name, offered)}"
             for name in changes if name not in known]
    wrong += [SHIFT_GIVEN.format(changes["iteration_shift"])] if "iteration_shift" in changes else []
    schedules = {name: "a function" if callable(changes[name]) else "a list of points"
                 for name in ("learning_rate", "clip_coef", "ent_coef") if _is_schedule(changes.get(name))}
    cfg = replace(cfg, **{name: value for name, value in changes.items() if name in known and name not in schedules})
    wrong += [*(SCHEDULE.format(name, what) for name, what in schedules.items()), *type_problems(cfg)]
    if wrong:
        raise UsageError("\n".join(wrong))
    return cfg.resolved()


def _is_schedule(value: Any) -> bool:
    """Return whether a value is a function, or a list of points such as [[0, 1e-3], [10000, 1e-5]]."""
    return callable(value) or (isinstance(value, (list, tuple)) and any(isinstance(x, (list, tuple)) for x in value))


def problems_of(cfg: Config, processes: int = 1) -> list[str]:
    """Return everything that is wrong with a configuration for this number of processes, one sentence each."""
    wrong = config_problems(cfg)
    if cfg.num_seeds > 1 and processes > 1:
        wrong.append(f"num_seeds={cfg.num_seeds} trains several agents in one process. Start it without torchrun.")
    return wrong


def record_problems(cfg: Config) -> list[str]:
    """Return one sentence for each field of a custom class whose value config.json cannot hold."""
    wrong = []
    for field in fields(cfg):
        try:
            json.dumps(getattr(cfg, field.name), default=asdict)
        except (TypeError, ValueError):
            wrong.append(f"{field.name}={getattr(cfg, field.name)!r:.60} cannot be written to config.json. Use "
                         "numbers, texts, True, False, None, or lists and dicts of these.")
    return wrong


def problems_of_parts(cfg: Config, parts: Parts) -> list[str]:
    """Return what is wrong with the device, the environment and the network that `cfg` names, one sentence each.

    Called only after another problem was found and before training has made environments, so that all problems are
    reported together. It creates the smallest number of environments.
    """
    wrong, make_agent = list[str](), parts.make_agent
    if cfg.framework == "torch":
        from proximo.on_torch.device import pick_device
        from proximo.on_torch.noise import seeded_agent
        from proximo.processes import world_from_environment

        make_agent = partial(seeded_agent, parts.make_agent)  # which leaves torch's own generator as it was
        if DEVICE.fullmatch(cfg.device):
            wrong += usage_errors(lambda: pick_device(cfg, world_from_environment()))
    engine = cfg.engine if cfg.engine in cfg.limits.engines else "auto"
    names = ("env_id", "model", "norm_obs", "norm_reward", *ENV_FIELDS, *IMAGES)
    changed = {name: getattr(cfg, name) for name in names}
    refused = cfg.env_file and not (cfg.limits.gymnasium and engine_of(cfg) == "gym")
    if refused or source_problems(cfg) or range_problems(type(cfg)(**changed, engine=engine).resolved()):
        return wrong  # named already; it is not the environment that was meant

    def make_parts() -> None:
        small = type(cfg)(**changed, engine=engine, num_envs=parts.rows_per_game(cfg)).resolved()
        envs = parts.make_envs(small, list(range(small.num_envs)))
        try:
            make_agent(make_normalizer(small, envs).spec, small)
        finally:
            envs.close()

    return wrong + usage_errors(make_parts)


def usage_errors(attempt: Callable[[], Any]) -> list[str]:
    """Return the lines of the UsageError that an attempt raises; nothing if it works or fails in another way.

    An attempt may call custom functions, which may raise anything. If no problem was found, training does the
    same, and raises that error.
    """
    try:
        attempt()
    except UsageError as error:
        return str(error).splitlines()
    except Exception:
        return []
    return []


def default_workers(cfg: Config, num_envs: int, local_processes: int) -> int:
    """Return the number of worker processes for `num_envs` environments of one process.

    Emulators of Atari games get one per core, if this process has at least four: two cores are busy with the
    convolutions alone. Other environments run in the process itself.
    """
    if cfg.limits.worker_default == "none" or cfg.model == "mlp" or cfg.engine == "envpool":
        return 0
    cores = usable_cores(local_processes)
    most = max((k for k in range(1, cores + 1) if num_envs % k == 0 and k % cfg.env_groups == 0), default=1)
    return most if most > 1 and cores >= 4 else 0
