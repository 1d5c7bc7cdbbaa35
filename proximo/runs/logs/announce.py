"""Messages of a run when it starts or continues, and of a model that is played."""

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from gymnasium import spaces

from proximo.config import Config
from proximo.envs.custom.env_file import function_in_file, names_function
from proximo.errors import notify, warn, warn_once
from proximo.facts import facts, shown
from proximo.part_checks import check_inside
from proximo.processes import world_from_environment
from proximo.protocols import MakeEnvs, VecEnv
from proximo.runs.check.value_ranges import unreached_actions
from proximo.runs.custom_parts import CustomParts
from proximo.runs.folder.csv_file import read_header
from proximo.runs.folder.run import UNNAMED, Run
from proximo.runs.logs.trackers import tracker_name
from proximo.runs.part_names import readers_among
from proximo.runs.presets import Preset

READS = {"make_envs": ("environment", "the environments"), "make_agent": ("policy", "the network")}  # group of settings
APPLIED = ("env_id", "env_file", "num_envs", "scale_envs", "num_steps", "env_groups", "norm_obs", "clip_obs",
           "norm_reward", "clip_norm_reward", "info_metrics",  # by training, or for a VectorEnv
           "recurrent")  # which make_complete_agent checks


def announce_variant(variant: str, env_id: str, why: str, settings: dict[str, Any]) -> None:
    """Log which variant was chosen for an environment, and which settings for its images."""
    notify(f"No variant was named: using {variant}, because {env_id} "
           f"{'is' if why.startswith(('a ', 'an ')) else 'has'} {why}.")
    if settings:
        notify(f"{env_id} returns images: using {', '.join(f'{name}={value}' for name, value in settings.items())}.")


def announced(make_envs: MakeEnvs, announce: Callable[[VecEnv], None], together: bool) -> MakeEnvs:
    """Return a function that calls `make_envs`, and after its first call `announce` with the environments.

    Raises:
        UsageError: Several runs train `together`, and a compiled function cannot step the environments.
    """
    pending = [announce]

    def make(cfg: Any, seeds: list[int]) -> VecEnv:
        envs = make_envs(cfg, seeds)
        if together and envs.play != "inside":
            envs.close()
            check_inside(cfg, envs)
        while pending:
            pending.pop()(envs)
        return envs

    return make


def announce_preset(preset: Preset, given: Collection[str]) -> None:
    """Log which preset is used, and what it sets besides the fields that were given."""
    settings = [text for text in preset.settings if text.partition("=")[0] not in given]
    notify(f"Using the preset {preset.env_id} of {preset.variant}{': ' if settings else ''}{', '.join(settings)}. "
           f"Source: {preset.source}. --preset none uses the defaults of a variant instead.")


def announce_start(cfg: Config, custom: CustomParts, envs: VecEnv) -> None:
    """Log how many iterations will run, which part of total_timesteps will not, and what is likely to be a mistake.

    Args:
        cfg: The configuration.
        custom: Parts that take the place of the variant's.
        envs: The environments.
    """
    if names_function(cfg.env_file):
        warn_of_unread(readers_among({"make_envs": function_in_file(cfg)}), cfg)
    steps, processes = cfg.num_iterations * cfg.batch_size, world_from_environment().size
    plural = "s" * (cfg.num_iterations > 1)
    notify(f"{cfg.num_iterations} iteration{plural} of {cfg.num_envs} x {cfg.num_steps} = {cfg.batch_size} steps.")
    if steps < cfg.total_timesteps:
        notify(f"total_timesteps={cfg.total_timesteps} is not a multiple of the batch size {cfg.batch_size}: "
               f"training for {steps} steps.")
    if cfg.eval_every > steps:
        warn(f"eval_every={cfg.eval_every} is more than the {steps} steps of this run: there will be no evaluation and "
             "no best model.")
    if custom.make_agent is None and not cfg.init_from:
        warn_of_bounds(cfg, envs.action_space)
    if cfg.init_from:
        what = "weights and the statistics of normalisation" if cfg.norm_obs or cfg.norm_reward else "weights"
        notify(f"The run begins with the {what} of {cfg.init_from}.")
    if processes > 1:
        notify(f"{processes} processes: local_num_envs {cfg.num_envs // processes}, num_envs {cfg.num_envs}, "
               f"local_batch_size {cfg.batch_size // processes}, batch_size {cfg.batch_size}, local_minibatch_size "
               f"{cfg.minibatch_size // processes}, minibatch_size {cfg.minibatch_size}")
    elif cfg.local_num_envs is not None:
        warn("local_num_envs was given, but there is only one process. Start several with "
             "`torchrun --standalone --nproc_per_node=2 -m proximo train ...`.")


def warn_of_bounds(cfg: Config, space: spaces.Space[Any]) -> None:
    """Warn of bounds of actions that the samples of a Gaussian policy do not suit."""
    if cfg.distribution in ("squashed", "beta") or not (found := unreached_actions(space, math.exp(cfg.log_std_init))):
        return
    can_squash = isinstance(space, spaces.Box) and not cfg.limits.own_distribution and space.is_bounded()
    advice = "Use --distribution squashed, or let" if can_squash else "Let"
    warn(f"{cfg.env_id}: {found}. {advice} the environment take actions of -1 to 1 (for a Box, the wrapper "
         "gymnasium.wrappers.RescaleAction).")


def announce_resume(folder: Path, cfg: Config, checkpoint: dict[str, Any] | None, ended: int | None = None) -> bool:
    """Log where a run, or cfg.num_seeds runs, continue, and return whether any iteration is left.

    Args:
        folder: The folder of the run, or of the runs.
        cfg: Its configuration.
        checkpoint: What it continues from.
        ended: The steps of a finished run that has no checkpoints any more.
    """
    what = f"{cfg.num_seeds} runs in {folder}" if cfg.num_seeds > 1 else str(folder)
    if ended is not None:
        notify(f"{what}: finished after {ended} steps. The checkpoints were removed, so it cannot be trained longer.")
        return False
    if checkpoint is None:
        notify(f"{what}: there is no checkpoint, so training starts with the first iteration.")
        return True
    done: int = checkpoint["state"]["iteration"]
    if done >= cfg.num_iterations:
        notify(f"{what}: all {max(done, cfg.num_iterations)} iterations are done. Use --total-timesteps N to train "
               "longer.")
        return False
    notify(f"{what}: training continues after iteration {done} of {cfg.num_iterations}.")
    return True


def announce_changes(before: Config, after: Config, checkpoint: Any, same_rate: bool) -> None:
    """Log which fields a resume changes, a learning rate that rises by it, and a tracker that it uses again.

    Args:
        before: The configuration in config.json, which may be a stranger's.
        after: That of the resume.
        checkpoint: What it continues from.
        same_rate: Whether all runs have one learning rate.
    """
    if (name := tracker_name(after)) and name == tracker_name(before):
        notify(f"config.json names the tracker {name}: the configuration and the metrics of the run are sent to it "
               f"with your account (project {after.wandb_project_name!r}). --no-track --logger console sends nothing.")
    changed = [f"{name} {old} -> {new}" for (name, old), new in zip(asdict(before).items(), asdict(after).values())
               if old != new]
    if changed:
        notify(f"Changed: {', '.join(changed)}")
    if changed and checkpoint is not None:
        done = checkpoint["state"]["iteration"]
        last, following = before.learning_rate_at(done), after.learning_rate_at(done + 1)
        if following > 1.1 * last:
            advice = f"`--no-anneal-lr --learning-rate {last:.2g}` continues with one value." if same_rate else \
                "These numbers are those of the first run; the rates of the others rise by the same factor."
            say = warn if before.learning_rate == after.learning_rate else notify  # a new rate was asked for
            say(f"The learning rate rises from {last:.2g} to {following:.2g}, because its schedule has changed. "
                f"{advice}")


def announce_callbacks(folder: Path, given: bool) -> None:
    """Warn of columns of metrics.csv that callbacks have filled, if none are given now."""
    if given or not (path := folder / "metrics.csv").exists():
        return
    if names := [name for name in read_header(path) if name.startswith("user/")]:
        warn(f"{', '.join(names)} will be empty from here on: callbacks gave these metrics, and none were given. "
             "Resume with proximo.resume(RUN, callbacks=[...]).")


def warn_of_unread(readers: Collection[str], cfg: Config, chosen: Config | None = None) -> None:
    """Warn of settings that have an effect only if custom functions read them.

    Args:
        readers: What `readers_among` returned.
        cfg: The configuration as given.
        chosen: What was chosen for the environment: its values were not given. None: the defaults of the class.
    """
    usual = {field.name: getattr(chosen, field.name) if chosen else field.default for field in fields(cfg)}
    for reader in readers:
        group, what = READS[reader]
        names = [name for name, fact in facts(cfg).items() if fact.group == group and name not in APPLIED
                 and (getattr(cfg, name) or None) != (usual[name] or None)]  # env_workers=0 changes nothing
        if names:
            several, values = len(names) > 1, ", ".join(f"{name}={shown(getattr(cfg, name))}" for name in names)
            warn(f"{values} {'have' if several else 'has'} an effect on {what} only if {reader} reads "
                 f"{'them' if several else 'it'} from its configuration.")


def changed_parts(old: Mapping[str, str], new: Mapping[str, str]) -> list[str]:
    """Return "NAME OLD -> NEW" for each custom part, by argument, with another name; lambdas have none."""
    before = {name: old.get(name, "none") for name in new}
    return [f"{name} {before[name]} -> {new[name]}" for name in new if before[name] not in (new[name], UNNAMED)
            and not (before[name].startswith("<") or (new[name].startswith("<") and name in old))]


def announce_parts(before: Run, after: Run) -> None:
    """Warn of custom parts that the record of a run does not have, or that have another name there."""
    if changed := changed_parts(before.custom_parts, after.custom_parts):
        warn(f"{after.folder} continues with parts of the program that it was not trained with: {', '.join(changed)}. "
             "config.json names them from here on.")


def warn_of_other_parts(source: str, recorded: Mapping[str, str], given: Mapping[str, str]) -> None:
    """Warn if a trained model is loaded or played with other functions than those of its run.

    Args:
        source: The folder of the model, or "the model".
        recorded: The names of the parts of its run, by argument.
        given: The names of those that are given now.
    """
    given = {name: one for name, one in given.items() if name in READS and name in recorded}
    if changed := changed_parts(recorded, given):
        warn_once(f"{source} was trained with other functions than those that are given now: {', '.join(changed)}.")
