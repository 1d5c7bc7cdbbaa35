"""The command profile: where the time of an iteration goes, and what may make training faster."""

import importlib.util
import re
from pathlib import Path
from typing import Any

from proximo.catalog import VARIANTS, parts_of
from proximo.cli.commands import HELP_FLAGS, chosen_defaults, named_class
from proximo.cli.flags import field_name, read_flags, split_flags, take_flag
from proximo.cli.messages import folder_problems
from proximo.cli.profile_advice import Machine, advice, draw, table
from proximo.config import Config
from proximo.envs.machine.cores import set_passive_openmp_wait, usable_cores
from proximo.errors import UsageError, nearest
from proximo.models.pictures import check_picture
from proximo.runs.folder.writing import write_json
from proximo.runs.init_from import with_start
from proximo.runs.settings.choice import check_given_id
from proximo.runs.settings.resolve import problems_of, problems_of_parts, resolve, usage_errors, whole_paths
from proximo.runs.shares import Shares, measure_shares

HELP = """usage: proximo profile [VARIANT] [ENV...] [--iterations 8] [--out profile.png] [--json FILE] [--flag ...]

Measure where the time of an iteration goes: environments, acting, evaluation and advantages, learning, log and
checkpoints; and say what may make training faster. The other flags are those of `proximo train`, and the variant may be
left out in the same way. Nothing but the picture is written.

  proximo profile CartPole-v1
  proximo profile CartPole-v1 LunarLander-v3 --num-envs 16
  proximo profile ppo_atari --env-id BreakoutNoFrameskip-v4 --threads 2

Flags:
  --iterations N   iterations that are measured, after a first one that includes the set-up (default: 8)
  --out FILE       the picture (default: profile.png)
  --json FILE      also write the seconds of the parts to this file"""


def profile_command(words: list[str]) -> int:
    """Measure, print and draw the shares of one or several environments; return the exit code."""
    if HELP_FLAGS & {*words}:
        print(HELP)
        return 0
    count = next((i for i, word in enumerate(words) if word.startswith("-")), len(words))
    names, flags = words[:count], words[count:]
    iterations, flags = _iterations(flags)
    out, flags = take_flag(flags, "out")
    json, flags = take_flag(flags, "json")
    picture = Path(out or "profile.png")
    wrong = folder_problems("--out", out, "profile.png") or usage_errors(lambda: check_picture(picture))
    if wrong := wrong + folder_problems("--json", json, "profile.json"):
        raise UsageError("\n".join(wrong))
    variant = names.pop(0) if names and names[0] in VARIANTS else ""
    if names and (also := [flag.word for flag in split_flags(flags) if field_name(flag.word) == "env_id"]):
        raise UsageError(f"{' '.join(names)} and {also[0]} were both given. Name every environment before the flags.")
    rows: dict[str, Shares] = {}
    for env_id in dict.fromkeys(names or [""]):
        given = [*flags, *(["--env-id", env_id] if env_id else [])]
        try:
            name, cfg, shares = profile_one(variant, given, iterations)
        except UsageError as error:  # the first word may be a variant
            raise UsageError(f"{error}{'' if variant or rows else nearest(env_id, VARIANTS)}") from error
        rows[cfg.env_id] = shares
        print(f"{cfg.env_id} ({name}, {cfg.framework}): {shares.sps:,.0f} steps per second, set-up "
              f"{shares.setup_seconds:.1f} s")
        lines = advice(shares, cfg, machine_for(name, cfg))
        print("\n".join([*table(shares), "", *(f"  {line}" for line in lines), ""]))
    print(draw(rows, picture))
    if json:
        write_json(Path(json), {env_id: shares._asdict() for env_id, shares in rows.items()},
                   ", or choose another file with --json")
    return 0


def _iterations(flags: list[str]) -> tuple[int, list[str]]:
    """Return the value of --iterations, and the other flags."""
    given, flags = take_flag(flags, "iterations")
    if given is not None and not re.fullmatch("0*[1-9][0-9]{0,8}", given):
        raise UsageError(f"--iterations {given:.60} must be a whole number of at least 1.")
    return int(given or 8), flags


def profile_one(variant: str, flags: list[str], iterations: int) -> tuple[str, Config, Shares]:
    """Measure one configuration.

    Args:
        variant: The name of the variant, or "".
        flags: Those of `proximo train`.
        iterations: How many are measured.

    Returns:
        Variant, resolved configuration and shares.

    Raises:
        UsageError: The configuration cannot work.
        EnvError: An environment failed.
    """
    variant, flags, defaults = chosen_defaults(variant, flags)
    kind = named_class(variant, "profile")
    values, wrong = read_flags(kind, flags)
    wrong += usage_errors(lambda: check_given_id(whole_paths(values)))
    cfg = resolve(kind(**{**defaults, **values}), variant, 1, 1)
    set_passive_openmp_wait(cfg)
    parts = parts_of(variant, cfg.framework)
    wrong = [*wrong, *problems_of(cfg), *(["num_seeds: profile measures one run. Leave --num-seeds out."]
                                          * (cfg.num_seeds > 1))]
    if wrong:
        raise UsageError("\n".join([*wrong, *problems_of_parts(cfg, parts)]))
    return variant, cfg, measure_shares(cfg, variant, with_start(parts, cfg), loss_of(cfg.framework), iterations)


def loss_of(framework: str) -> Any:
    """Return the loss of a framework."""
    if framework == "jax":
        from proximo.on_jax.loss import ppo_loss
    else:
        from proximo.on_torch.loss import ppo_loss  # type: ignore[assignment]
    return ppo_loss


def machine_for(variant: str, cfg: Config) -> Machine:
    """Return what is available on this machine."""
    import torch

    jax_task = False
    if VARIANTS[variant].make_envs_inside and importlib.util.find_spec("jax"):
        from proximo.envs.inside import control_inside

        jax_task = control_inside(cfg)
    return Machine(cores=usable_cores(), cuda=torch.cuda.is_available(), jax_task=jax_task,
                   envpool=importlib.util.find_spec("envpool") is not None)
