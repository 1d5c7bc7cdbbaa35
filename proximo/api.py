"""From Python: proximo.train(cfg) and proximo.load(path). Whoever wants the loop itself takes on_torch.train.train."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from proximo.config import Config

if TYPE_CHECKING:
    from proximo.model import Model


def train(cfg: Config, make_envs: Callable | None = None, make_agent: Callable | None = None,
          loss_fn: Callable | None = None) -> Path:
    """Train as `proximo train` does and return the run's folder. The variant is the configuration's class;
    environments, agent or loss of one's own take the place of the recipe's. Raises UsageError, EnvError, NumbersError,
    FilesError, and KeyboardInterrupt where a signal ended the run (it can be resumed)."""
    from proximo.errors import UsageError
    from proximo.run import Watcher, follow, forget_run, run_folder, singly, write_config
    from proximo.wiring import problems_of, recipe_of, resolve, variant_of

    variant = variant_of(cfg)
    in_process = replace(cfg, env_workers=cfg.env_workers or 0)  # worker processes would run the caller's script again
    cfg = resolve(in_process, variant, 1, 1)
    if problems := problems_of(cfg, variant):
        raise UsageError("\n".join(problems))
    recipe = recipe_of(variant, cfg.framework)
    folder = run_folder(cfg)
    write_config(folder, cfg, variant)
    extra = {} if loss_fn is None else {"loss_fn": loss_fn}
    iterations = recipe.train(cfg, make_envs or recipe.make_envs, make_agent or recipe.make_agent, **extra)
    try:
        code = follow([Watcher(folder, cfg, variant)], singly(iterations))
    except UsageError:
        forget_run(folder)
        raise
    if code:
        raise KeyboardInterrupt
    return folder


def load(path: str | Path, make_agent: Callable | None = None) -> "Model":
    """The model of a run, or of a model's folder: `load(path).act(raw_obs)`. `make_agent(spec, cfg)` rebuilds a network
    that is no recipe's. Raises FilesError where there is none, or it is damaged."""
    from proximo.model import model_from, read_model
    from proximo.run import config_from
    from proximo.wiring import config_class, recipe_of, torch_twin

    tree = read_model(Path(path))
    cfg = config_from(tree["config"], config_class(tree["variant"]))
    recipe = recipe_of(torch_twin(tree["variant"]), "torch")
    if make_agent is None:
        return model_from(tree, cfg, recipe.make_actor)
    from proximo.on_torch.actor import Actor

    return model_from(tree, cfg, lambda spec, cfg, weights: Actor(make_agent, spec, cfg, weights))
