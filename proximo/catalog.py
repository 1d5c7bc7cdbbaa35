"""The table of variants, and the parts that train each of them."""

import importlib.util
from collections.abc import Callable, Generator, Iterator, Sequence
from functools import partial
from typing import Any, Literal, NamedTuple

from proximo.config import Config
from proximo.envs.atari import make_atari
from proximo.envs.brax import make_brax
from proximo.envs.custom.env_file import function_in_file
from proximo.envs.envpool import make_envpool_atari
from proximo.envs.gym import make_gym
from proximo.envs.gym_source import ENV_FIELDS, plays_atari
from proximo.envs.inside import make_atari_inside, make_control_inside
from proximo.envs.mujoco import make_mujoco
from proximo.envs.pettingzoo import make_pettingzoo
from proximo.envs.procgen import make_procgen
from proximo.errors import UsageError, names_text, nearest, one_line
from proximo.facts import facts
from proximo.protocols import MakeEnvs, VecEnv
from proximo.runs.interrupts.unbroken import unbroken_imports
from proximo.types import Iteration
from proximo.variants import (
    RPO,
    Atari,
    AtariEnvpool,
    AtariLSTM,
    AtariMultiGPU,
    AtariXLA,
    AtariXLAScan,
    BatchedHands,
    BatchedSim,
    Compact,
    Continuous,
    Procgen,
    SelfPlay,
)


class Variant(NamedTuple):
    """What distinguishes a variant: its defaults, its environments, and the head over continuous actions."""

    config: type[Config]
    make_envs: MakeEnvs  # stepped from outside, by either framework
    make_envs_inside: Callable[[Any, Sequence[int]], VecEnv | None] | None = None  # JAX: in the compiled function
    head: Literal["plain", "rpo"] = "plain"


def make_gym_or_atari(cfg: Compact, seeds: Sequence[int]) -> VecEnv:
    """Make an Atari game by its id, otherwise any Gymnasium environment; UsageError for settings that a game lacks."""
    if not plays_atari(cfg):
        return make_gym(cfg, seeds)
    if given := [name for name in ENV_FIELDS if getattr(cfg, name)]:
        raise UsageError(f"{' and '.join(given)}: {cfg.env_id} is an Atari game, which does not take this. Use the "
                         "settings of Atari games (proximo train ppo_atari --help).")
    return make_atari(cfg, seeds)


VARIANTS: dict[str, Variant] = {
    "ppo": Variant(Config, make_gym, make_control_inside),
    "ppo_atari": Variant(Atari, make_atari),
    "ppo_continuous_action": Variant(Continuous, make_mujoco, make_control_inside),
    "rpo_continuous_action": Variant(RPO, make_mujoco, make_control_inside, head="rpo"),
    "ppo_atari_lstm": Variant(AtariLSTM, make_atari),
    "ppo_atari_envpool": Variant(AtariEnvpool, make_envpool_atari),
    "ppo_atari_envpool_xla_jax": Variant(AtariXLA, make_envpool_atari, make_atari_inside),
    "ppo_atari_envpool_xla_jax_scan": Variant(AtariXLAScan, make_envpool_atari, make_atari_inside),
    "ppo_procgen": Variant(Procgen, make_procgen),
    "ppo_atari_multigpu": Variant(AtariMultiGPU, make_atari),
    "ppo_pettingzoo_ma_atari": Variant(SelfPlay, make_pettingzoo),
    "ppo_continuous_action_isaacgym": Variant(BatchedSim, make_brax),
    "ppo_continuous_action_isaacgym_hands": Variant(BatchedHands, make_brax),
    "compact": Variant(Compact, make_gym_or_atari),
}


def or_by_file(make_envs: MakeEnvs) -> MakeEnvs:
    """Return a function that calls make_envs of the file that a configuration names, if it has one, or `make_envs`."""
    def make(cfg: Any, seeds: list[int]) -> VecEnv:
        custom = function_in_file(cfg)
        if custom is None:
            return make_envs(cfg, seeds)
        from proximo.envs.custom.suite import make_complete

        return make_complete(custom, cfg, seeds)

    return make


def rows_per_game(cfg: Any) -> int:
    """Return the number that divides num_envs: the players of a game, or what make_envs of a file says."""
    custom = getattr(function_in_file(cfg), "rows_per_game", None)
    return custom(cfg) if custom else cfg.limits.max_players  # type: ignore[no-any-return]


class Parts(NamedTuple):
    """What trains a variant in one framework, and what lets the trained network act again."""

    train: Callable[..., Generator[Iteration, None, None]]  # (cfg, make_envs, make_agent, loss_fn=ppo_loss, state=None)
    make_envs: MakeEnvs
    make_agent: Callable[[Any, Any], Any]  # (spec, cfg) -> the agent, with a Spec
    make_actor: Callable[..., Any]  # (spec, cfg, weights) -> Actor
    rows_per_game: Callable[[Any], int] = rows_per_game
    train_group: Callable[..., Iterator[list[Iteration | None]]] | None = None  # several runs at once: on_jax


def config_class(variant: str, advice: str = "") -> type[Config]:
    """Return the configuration class of a variant.

    Args:
        variant: Its name.
        advice: What to do, for the message, if no variant has a similar name.

    Raises:
        UsageError: There is no such variant; the message lists all.
    """
    if not isinstance(variant, str) or variant not in VARIANTS:
        near = nearest(str(variant).lower(), VARIANTS) or advice
        raise UsageError(f"{one_line(variant)} is not a variant.{near} The variants are {', '.join(VARIANTS)}.")
    return VARIANTS[variant].config


def variants_with(field: str) -> str:
    """Return a sentence, after a space, that names the first variants with this field; "" if no variant has it."""
    found = [name for name, variant in VARIANTS.items() if field in facts(variant.config)]
    return f" It is a setting of {names_text(found, 2)}." if found else ""


def variant_of(kind: type[Config]) -> str:
    """Return the name of the variant that a configuration class belongs to; UsageError if there is none."""
    names = {variant.config: name for name, variant in VARIANTS.items()}
    found = [names[base] for base in getattr(kind, "__mro__", ()) if base in names]
    if not found:
        given = getattr(kind, "__name__", one_line(f"{kind!r:.60}"))
        raise UsageError(f"{given} is not a configuration class. Use Config, a class of proximo.variants, or a "
                         "subclass of one of them. An environment is given as env=...")
    return found[0]


def parts_of(variant: str, framework: str) -> Parts:
    """Return the parts of a variant in one framework ("torch" or "jax").

    Raises:
        UsageError: There is no such variant or framework, or the framework is not installed.
    """
    config_class(variant)
    if not isinstance(framework, str) or framework not in ("torch", "jax"):
        raise UsageError(f"framework={one_line(framework):.60} is unknown. Use torch or jax.")
    with unbroken_imports():
        return _jax_parts(VARIANTS[variant]) if framework == "jax" else _torch_parts(VARIANTS[variant])


def _torch_parts(variant: Variant) -> Parts:
    from proximo.on_torch.actor import Actor
    from proximo.on_torch.assemble import assemble
    from proximo.on_torch.box_heads import make_box_head, make_rpo_head
    from proximo.on_torch.overlap import train_overlapped
    from proximo.on_torch.train import train

    def train_as_configured(cfg: Any, *parts: Any, **others: Any) -> Generator[Iteration, None, None]:
        return (train_overlapped if cfg.overlap else train)(cfg, *parts, **others)

    make_agent = partial(assemble, make_box=make_rpo_head if variant.head == "rpo" else make_box_head)
    return Parts(train_as_configured, or_by_file(variant.make_envs), make_agent, partial(Actor, make_agent))


def _jax_parts(variant: Variant) -> Parts:
    if absent := [name for name in ("jax", "flax", "optax") if importlib.util.find_spec(name) is None]:
        raise UsageError(f'--framework jax needs {", ".join(absent)}: pip install "proximo[jax]"')
    from proximo.on_jax.actor import Actor
    from proximo.on_jax.assemble import assemble
    from proximo.on_jax.box_heads import make_box_head, make_rpo_head
    from proximo.on_jax.train import train
    from proximo.on_jax.train_group import train_group

    def make_envs(cfg: Any, seeds: list[int]) -> VecEnv:
        envs = variant.make_envs_inside(cfg, seeds) if variant.make_envs_inside else None
        return variant.make_envs(cfg, seeds) if envs is None else envs

    make_agent = partial(assemble, make_box=make_rpo_head if variant.head == "rpo" else make_box_head)
    return Parts(train, or_by_file(make_envs), make_agent, partial(Actor, make_agent), train_group=train_group)
