"""`--init-from RUN`: a run that begins with the weights and the statistics of normalisation of a trained agent."""

from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from proximo.catalog import Parts
from proximo.config import Config
from proximo.envs.arrays.moments import Moments
from proximo.errors import FilesError, UsageError, warn_once
from proximo.facts import facts, shown
from proximo.models.read_folder import read_model
from proximo.models.save_folder import moments_of
from proximo.models.spaces import spec_from
from proximo.models.task import bounds_difference, task_difference
from proximo.models.weights import check_numbers
from proximo.protocols import MakeEnvs, Spec, VecEnv
from proximo.runs.run_group import check_one_run

MEANING = ("activation", "distribution", "norm_obs", "critic_obs")  # change what weights of the same shapes compute
SCALE = ("norm_reward", "gamma")  # fields that change the scale of returns
PARTLY = ("To begin with the weights that fit, save a model of this network that has them "
          "(docs/add-a-network.md#begin-with-trained-weights).")
BEGINNING = ("log_std_init", "orthogonal_init")  # fields that only draw the first weights, which init_from replaces


class StartedEnvs:
    """A VecEnv whose observations and rewards are normalised from the first step by statistics that are known.

    Args:
        envs: The environments.
        start_moments: The statistics of observations, "obs", and of discounted returns, "ret"; either may be missing.
    """

    def __init__(self, envs: VecEnv, start_moments: Mapping[str, Moments]) -> None:
        self._envs, self.start_moments = envs, start_moments

    def __getattr__(self, name: str) -> Any:
        return getattr(self._envs, name)


def with_start(parts: Parts, cfg: Config) -> Parts:
    """Return parts that begin with the model in `cfg.init_from`; the same parts if it is empty.

    Raises:
        UsageError: There is no such folder, or its agent acts with other settings.
        FilesError: It contains no model, or a damaged one.
    """
    if not cfg.init_from:
        return parts
    try:
        check_one_run(Path(cfg.init_from))
        model = read_model(Path(cfg.init_from))
    except UsageError as error:
        raise UsageError(f"init_from={cfg.init_from} cannot be used: {error}") from error
    check_numbers(model)
    meaning = (*MEANING, "log_std_init") if cfg.state_dependent_std else MEANING  # it is added to what is computed
    if other := differences(cfg, model["config"], meaning):
        raise UsageError("\n".join(f"init_from={cfg.init_from} was trained with {setting}." for setting in other))
    for setting in differences(cfg, model["config"], SCALE):
        warn_once(f"init_from={cfg.init_from} was trained with {setting}. Its value function was learned for another "
                  "scale of returns.")
    return parts._replace(make_agent=partial(make_trained_agent, parts.make_agent, model, cfg.init_from),
                          make_envs=partial(make_started_envs, parts.make_envs, moments_of(model)))


def differences(cfg: Config, trained: Mapping[str, Any], names: Iterable[str]) -> list[str]:
    """Return a phrase for each of some fields that has another value in the configuration of a model, as JSON."""
    pairs = [(name, shown(trained[name]), shown(getattr(cfg, name))) for name in names if name in trained]
    return [f"{name}={before or 'empty'}, and this run has {name}={now or 'empty'}" for name, before, now in pairs
            if before != now]


def make_trained_agent(make_agent: Any, model: dict[str, Any], source: str, spec: Spec, cfg: Config) -> Any:
    """Make an agent with the weights of a model, what `read_model` returned for the folder `source`.

    Raises:
        UsageError: They belong to another network: that of other settings, observations, actions or make_agent.
    """
    if cfg.framework == "jax":
        from proximo.on_jax.parameters import load_weights
    else:
        from proximo.on_torch.snapshot import load_weights  # type: ignore[assignment]
    problem = task_difference(spec_from(model), spec, bool(cfg.norm_obs))
    try:
        agent = load_weights(make_agent(spec, cfg), model["weights"])
    except FilesError as error:
        policy = [name for name, fact in facts(cfg).items() if fact.group == "policy" and name not in BEGINNING]
        other = "".join(f" It was trained with {setting}." for setting in differences(cfg, model["config"], policy))
        other += f" {problem}" if problem else ""
        raise UsageError(f"init_from={source} does not fit this run: {error}{other} {PARTLY}") from error
    if different := problem or bounds_difference(spec_from(model), spec):
        warn_once(f"init_from={source}: {different} Its network is used as it is.")
    return agent


def make_started_envs(make_envs: MakeEnvs, moments: Mapping[str, Moments], cfg: Config, seeds: list[int]) -> Any:
    """Make environments that are normalised by known statistics from the first step."""
    return StartedEnvs(make_envs(cfg, seeds), moments)
