"""Resuming with another number of processes: sizes that divide evenly, and the iterations that are left."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from proximo.config import Config
from proximo.errors import FilesError, UsageError, notify
from proximo.runs.folder.run import Run

SIZES = ("num_envs", "env_workers", "num_minibatches")  # change with the number of processes


def fit_to_processes(cfg: Config, processes: int) -> Config:
    """Return a configuration whose sizes can be divided among processes.

    If local_num_envs is given, num_envs is local_num_envs times the number of processes. Otherwise num_envs stays if it
    is divisible, and becomes the next smaller multiple if not; if the environments are players of a game, each process
    has whole games. num_minibatches and env_workers become the next smaller numbers that divide the rows and
    the environments of a process. Sizes for which there is no such number stay as they are.

    Args:
        cfg: The configuration, resolved.
        processes: Processes of the run, on all machines.
    """
    if cfg.local_num_envs is not None:
        cfg = replace(cfg, num_envs=cfg.local_num_envs * processes)
    if processes == 1:
        return cfg
    num_envs, players = cfg.num_envs, cfg.limits.max_players
    if num_envs % processes:
        num_envs -= num_envs % (processes * players if num_envs >= processes * players else processes)
    own = num_envs // processes
    rows = own if cfg.recurrent != "none" else own * cfg.num_steps
    if own < 1:
        return cfg
    return replace(cfg, num_envs=num_envs, num_minibatches=_next_divisor(cfg.num_minibatches, rows),
                   env_workers=cfg.env_workers and _next_divisor(cfg.env_workers, own, cfg.env_groups))


def announce_sizes(asked: Config, fitted: Config, processes: int) -> Config:
    """Log which sizes fit_to_processes() has changed, and return `fitted`."""
    changed = [f"{name} {getattr(asked, name)} -> {getattr(fitted, name)}" for name in SIZES
               if getattr(asked, name) != getattr(fitted, name)]
    if changed:
        notify(f"Sizes that {processes} processes cannot divide: {', '.join(changed)}.")
    return fitted


def continue_schedule(cfg: Config, checkpoint: dict[str, Any] | None) -> Config:
    """Return the configuration of a resumed run with its iteration_shift.

    If num_envs has changed, the iterations that are left have other sizes: as many as total_timesteps has room for, at
    least one if the run has not finished. Schedules continue at the share of total_timesteps that was played.

    Args:
        cfg: The configuration that the run continues with.
        checkpoint: The checkpoint that it continues from.

    Raises:
        FilesError: The checkpoint has fewer than one environment.
    """
    if checkpoint is None:
        return replace(cfg, iteration_shift=0)
    fixed, done = checkpoint["fixed"], checkpoint["state"]["iteration"]
    before = replace(cfg, num_envs=fixed.get("num_envs", cfg.num_envs), iteration_shift=fixed.get("iteration_shift", 0))
    if before.num_envs == cfg.num_envs:
        return before
    if before.num_envs < 1:
        raise FilesError(f"The newest checkpoint is damaged: it has num_envs={before.num_envs}. Move the newest folder "
                         "of checkpoints/ to another place, so that the one before it is used.")
    left = max(1, (cfg.total_timesteps - checkpoint["state"]["steps"]) // cfg.batch_size)
    whole = cfg.total_timesteps // cfg.batch_size
    return replace(cfg, iteration_shift=done - whole + (left if done < before.num_iterations else 0))


def refuse_earlier_end(before: Sequence[Run], runs: Sequence[Run],
                       checkpoints: Sequence[dict[str, Any] | None]) -> None:
    """Refuse to end runs that have not finished after fewer steps than they have played.

    Args:
        before: The runs as they were recorded.
        runs: The same runs as they are to continue.
        checkpoints: What each continues from.

    Raises:
        UsageError: The new total_timesteps of an unfinished run leaves no iteration.
    """
    for old, run, kept in zip(before, runs, checkpoints, strict=True):
        if kept is None or (run.folder / "summary.json").exists():
            continue
        done, steps = kept["state"]["iteration"], kept["state"]["steps"]
        total = old.cfg.total_timesteps
        recorded = continue_schedule(replace(run.cfg, total_timesteps=total), kept)
        if run.cfg.num_iterations <= done < recorded.num_iterations:
            raise UsageError(
                f"total_timesteps={run.cfg.total_timesteps} was given, but {run.folder} has trained for {steps} of "
                f"{total} steps. Give at least {steps + run.cfg.batch_size}, or leave --total-timesteps out.")


def _next_divisor(number: int, whole: int, of: int = 1) -> int:
    """Return the largest multiple of `of` up to a number that divides `whole`, or the number where there is none."""
    return max((k for k in range(of, min(number, whole) + 1, of) if whole % k == 0), default=number)
