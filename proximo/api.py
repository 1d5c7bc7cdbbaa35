"""From Python: proximo.train(cfg), proximo.resume(run), proximo.load(path). The loop itself is on_torch/train.py."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from proximo.config import Config

if TYPE_CHECKING:
    from proximo.models.model import Model


def train(cfg: Config, make_envs: Callable | None = None, make_agent: Callable | None = None,
          loss_fn: Callable | None = None) -> Path:
    """Train as `proximo train` does and return the run's folder, with num_seeds the one that holds their runs. The
    variant is the configuration's class; environments, agent or loss of one's own take the place of the recipe's.
    Raises UsageError, EnvError, NumbersError, FilesError, PeerError, and KeyboardInterrupt where a signal ended the run
    (it can be resumed)."""
    from proximo.catalog import parts_of, variant_of
    from proximo.errors import UsageError
    from proximo.runs.resolve import problems_of, resolve
    from proximo.runs.run import forget_run, run_folder, write_config
    from proximo.runs.seed_runs import start_seeds

    variant = variant_of(cfg)
    in_process = replace(cfg, env_workers=cfg.env_workers or 0)  # worker processes would run the caller's script again
    cfg = resolve(in_process, variant, 1, 1)
    if problems := problems_of(cfg):
        raise UsageError("\n".join(problems))
    folder = run_folder(cfg)
    if cfg.num_seeds > 1:
        if make_envs or make_agent or loss_fn:
            raise UsageError(f"num_seeds={cfg.num_seeds} trains the variant's own environments, network and loss; with "
                             "parts of your own call proximo.train once for each seed")
        if start_seeds(replace(cfg, run_dir=str(folder)), variant, parts_of(variant, cfg.framework)):
            raise KeyboardInterrupt
        return folder
    given = [f"{name}=..." for name, part in (("make_envs", make_envs), ("make_agent", make_agent),
                                              ("loss_fn", loss_fn)) if part is not None]
    write_config(folder, cfg, variant, f"proximo.resume('RUN', {', '.join(given)})" if given else "")
    try:
        return _play(folder, cfg, variant, None, make_envs, make_agent, loss_fn)
    except UsageError:
        forget_run(folder)
        raise


def resume(run: str | Path, make_envs: Callable | None = None, make_agent: Callable | None = None,
           loss_fn: Callable | None = None, **changes: Any) -> Path:
    """Go on from the newest checkpoint of a run, bit for bit, as `proximo resume` does; parts of one's own are given
    again, `changes` are hyper-parameters that change from here on. Raises what train() raises."""
    from proximo.catalog import config_class
    from proximo.errors import UsageError
    from proximo.runs.resolve import problems_of, with_changes
    from proximo.runs.run import continued, read_config, write_config
    from proximo.runs.seed_runs import resume_seeds, seed_folders

    folder = Path(run)
    if seeds := seed_folders(folder):
        if make_envs or make_agent or loss_fn:
            raise UsageError(f"the runs in {folder} have the variant's own environments, network and loss")
        if resume_seeds(seeds, changes):
            raise KeyboardInterrupt
        return folder
    before, variant, resume_with, processes = read_config(folder, config_class)
    cfg = with_changes(before, changes)
    if problems := problems_of(cfg):
        raise UsageError("\n".join(problems))
    lacking = [name for name, part in (("make_envs", make_envs), ("make_agent", make_agent), ("loss_fn", loss_fn))
               if f"{name}=" in resume_with and part is None]
    if lacking or resume_with.startswith("python "):
        raise UsageError(f"{folder} has parts of its own; continue it with: {resume_with.replace('RUN', str(folder))}")
    kept = continued(folder, cfg, processes)
    if kept is not None and kept["state"]["iteration"] >= cfg.num_iterations:
        return folder
    return _play(folder, cfg, variant, kept, make_envs, make_agent, loss_fn,
                 partial(write_config, folder, cfg, variant, resume_with))


def _play(folder: Path, cfg: Config, variant: str, kept: dict | None, make_envs: Callable | None,
          make_agent: Callable | None, loss_fn: Callable | None, begin: Callable[[], None] | None = None) -> Path:
    from proximo.catalog import parts_of
    from proximo.cli.model_commands import recorder
    from proximo.runs.run import Watcher, follow, singly

    recipe = parts_of(variant, cfg.framework)
    extra = {} if loss_fn is None else {"loss_fn": loss_fn}
    iterations = recipe.train(cfg, make_envs or recipe.make_envs, make_agent or recipe.make_agent,
                              state=kept["state"] if kept else None, **extra)
    record = None if make_envs or make_agent else recorder(cfg, variant)
    if follow([Watcher(folder, cfg, variant, record, kept, begin)], singly(iterations)):
        raise KeyboardInterrupt
    return folder


def load(path: str | Path, make_agent: Callable | None = None) -> "Model":
    """The model of a run, or of a model's folder: `load(path).act(raw_obs)`. `make_agent(spec, cfg)` rebuilds a network
    that is no recipe's. Raises FilesError where there is none, or it is damaged."""
    from proximo.catalog import config_class, parts_of
    from proximo.models.model import model_from, read_model
    from proximo.runs.run import config_from

    tree = read_model(Path(path))
    cfg = config_from(tree["config"], config_class(tree["variant"]))
    recipe = parts_of(tree["variant"], "torch")
    if make_agent is None:
        return model_from(tree, cfg, recipe.make_actor)
    from proximo.on_torch.actor import Actor

    return model_from(tree, cfg, lambda spec, cfg, weights: Actor(make_agent, spec, cfg, weights))
