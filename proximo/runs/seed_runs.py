"""Runs of several seeds that one compiled function trains (--num-seeds): begun together, and gone on with together, bit
for bit."""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from proximo.catalog import Parts, config_class, parts_of
from proximo.cli.model_commands import recorder
from proximo.config import Config
from proximo.errors import UsageError, notify
from proximo.runs.checkpoint import load_tree
from proximo.runs.resolve import problems_of, with_changes
from proximo.runs.run import Watcher, continued, follow, forget_run, read_config, run_folder, write_config


def seed_folders(base: Path) -> list[Path]:
    """The runs seed-1, seed-2, ... of one command, in order of seed; none where `base` is a run itself."""
    found = [path for path in base.glob("seed-*") if path.name[5:].isdigit() and (path / "config.json").is_file()]
    return [] if (base / "config.json").exists() else sorted(found, key=lambda path: int(path.name[5:]))


def start_seeds(cfg: Config, variant: str, recipe: Parts) -> int:
    """Several seeds in one compiled function, a run directory each in `run_folder(cfg)`: as if each had been trained
    alone. Returns the exit code."""
    from proximo.on_jax.train_seeds import train_seeds

    base, watchers = run_folder(cfg), []
    for seed in range(cfg.seed, cfg.seed + cfg.num_seeds):
        one = replace(cfg, seed=seed, num_seeds=1, run_dir=str(base / f"seed-{seed}"),
                      logger=cfg.logger if seed == cfg.seed else "none")
        folder = run_folder(one)
        write_config(folder, one, variant)
        watchers.append(Watcher(folder, one, variant, recorder(one, variant)))
    try:
        code = follow(watchers, train_seeds(cfg, recipe.make_envs, recipe.make_agent))
    except UsageError:
        for watcher in watchers:
            forget_run(watcher.folder)
        if base.is_dir() and not any(base.iterdir()):
            base.rmdir()
        raise
    if code == 0:
        notify(f"done: {cfg.num_seeds} runs in {base}")
    return code


def resume_seeds(folders: list[Path], changes: dict[str, Any]) -> int:
    """Go on with all runs of a `--num-seeds` command from the newest checkpoint that all of them have; `changes` are
    for all. Returns the exit code. UsageError where the runs do not belong together."""
    from proximo.on_jax.train_seeds import train_seeds

    records = [read_config(folder, config_class) for folder in folders]
    variant, base = records[0].variant, folders[0].parent
    cfgs = [with_changes(record.cfg, changes) for record in records]
    whole = replace(cfgs[0], num_seeds=len(cfgs))
    check_group(base, cfgs)
    if problems := problems_of(whole):
        raise UsageError("\n".join(problems))
    kept = common_checkpoints(folders, cfgs)
    if kept is None:
        notify(f"not all runs in {base} have a checkpoint: they start from their first iteration")
    elif kept[0]["state"]["iteration"] >= whole.num_iterations:
        notify(f"the runs in {base} have done all of their {whole.num_iterations} iterations; --total-timesteps N makes "
            "them longer")
        return 0
    else:
        notify(f"{len(cfgs)} runs in {base} go on after iteration {kept[0]['state']['iteration']} of "
            f"{whole.num_iterations}")
    recipe, watchers = parts_of(variant, "jax"), []
    for i, (folder, cfg) in enumerate(zip(folders, cfgs)):
        begin = partial(write_config, folder, cfg, variant) if cfg != records[i].cfg else None
        watchers.append(Watcher(folder, cfg, variant, recorder(cfg, variant), kept[i] if kept else None, begin))
    states = [each["state"] for each in kept] if kept else None
    code = follow(watchers, train_seeds(whole, recipe.make_envs, recipe.make_agent, states=states))
    if code == 0:
        notify(f"done: {len(cfgs)} runs in {base}")
    return code


def check_group(base: Path, cfgs: list[Config]) -> None:
    """UsageError unless they are consecutive seeds of one configuration."""
    alike = [replace(cfg, seed=0, run_dir="", logger="none") for cfg in cfgs]
    seeds = [cfg.seed for cfg in cfgs]
    if any(cfg != alike[0] for cfg in alike) or seeds != list(range(seeds[0], seeds[0] + len(seeds))):
        raise UsageError(f"the runs in {base} are not those of one --num-seeds command (seeds {seeds}); resume them "
                         f"one by one: proximo resume {base}/seed-{seeds[0]}")


def common_checkpoints(folders: list[Path], cfgs: list[Config]) -> list[dict] | None:
    """Of every run the checkpoint of one iteration, the newest that all have; None where one has no checkpoint.
    FilesError where that one is damaged or gone."""
    newest = [continued(folder, cfg) for folder, cfg in zip(folders, cfgs)]
    if any(kept is None for kept in newest):
        return None
    found = [kept for kept in newest if kept is not None]
    iteration = min(kept["state"]["iteration"] for kept in found)
    return [kept if kept["state"]["iteration"] == iteration else load_tree(folder / "checkpoints" / f"{iteration:08d}")
            for folder, kept in zip(folders, found)]


def say_if_one_of_several(folder: Path) -> None:
    """A run of a `--num-seeds` command that goes on alone."""
    if len(seed_folders(folder.parent)) > 1:
        notify(f"{folder.name} was trained in one function with the other seeds in {folder.parent}: alone it goes on "
            f"equal up to rounding; exactly with all of them: proximo resume {folder.parent}")
