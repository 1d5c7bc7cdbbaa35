"""Every suite of environments on one page: its variants, its packages, example ids, platforms with wheels."""

from importlib.util import find_spec
from typing import NamedTuple

from proximo.catalog import VARIANTS

LINUX, LINUX_ARM, MAC, WINDOWS = "Linux x86-64", "Linux ARM", "macOS ARM", "Windows"
EVERYWHERE = (LINUX, LINUX_ARM, MAC, WINDOWS)


class Suite(NamedTuple):
    """One family of environments."""

    name: str
    extra: str  # of `pip install "proximo[EXTRA]"`; empty: part of every installation
    packages: tuple[str, ...]  # modules that must be found, as they are imported
    variants: tuple[str, ...]
    examples: tuple[str, ...]
    platforms: tuple[str, ...]  # for which PyPI holds wheels (Python 3.11 to 3.13)


SUITES = (
    Suite(name="classic control", extra="", packages=("gymnasium", "pygame"),
          variants=("ppo", "rpo_continuous_action", "ppo_continuous_action"),
          examples=("CartPole-v1", "Acrobot-v1", "MountainCar-v0", "Pendulum-v1"), platforms=EVERYWHERE),
    Suite(name="any Gymnasium environment", extra="", packages=("gymnasium",),
          variants=("ppo", "ppo_continuous_action", "rpo_continuous_action"),
          examples=("my_package:MyEnv-v0",), platforms=EVERYWHERE),
    Suite(name="Box2D", extra="box2d", packages=("gymnasium", "Box2D", "pygame"),
          variants=("ppo", "compact", "ppo_continuous_action"),
          examples=("LunarLander-v3", "BipedalWalker-v3", "CarRacing-v3"), platforms=(LINUX, MAC, WINDOWS)),
    Suite(name="Atari", extra="atari", packages=("ale_py", "cv2"),
          variants=("ppo_atari", "ppo_atari_lstm", "ppo_atari_multigpu", "compact"),
          examples=("BreakoutNoFrameskip-v4", "ALE/Pong-v5"), platforms=EVERYWHERE),
    Suite(name="MuJoCo", extra="mujoco", packages=("mujoco",),
          variants=("ppo_continuous_action", "rpo_continuous_action"),
          examples=("HalfCheetah-v4", "Hopper-v5", "Ant-v4"), platforms=EVERYWHERE),
    Suite(name="dm_control", extra="dm_control", packages=("dm_control", "shimmy", "mujoco"),
          variants=("ppo_continuous_action", "rpo_continuous_action"),
          examples=("dm_control/cartpole-balance-v0", "dm_control/walker-walk-v0"), platforms=EVERYWHERE),
    Suite(name="EnvPool", extra="envpool", packages=("envpool",),
          variants=("ppo_atari_envpool", "any variant with --engine envpool"),
          examples=("Breakout-v5", "CartPole-v1", "HalfCheetah-v4"), platforms=EVERYWHERE),
    # EnvPool's wheels for macOS and Windows have no XLA handle
    Suite(name="EnvPool inside JAX", extra="envpool,jax", packages=("envpool", "jax", "flax", "optax"),
          variants=("ppo_atari_envpool_xla_jax", "ppo_atari_envpool_xla_jax_scan"),
          examples=("Breakout-v5", "Pong-v5"), platforms=(LINUX, LINUX_ARM)),
    Suite(name="Procgen", extra="procgen", packages=("envpool", "PyQt5"),
          variants=("ppo_procgen",),
          examples=("starpilot", "bossfight", "bigfish"), platforms=(LINUX, MAC)),
    Suite(name="PettingZoo Atari", extra="pettingzoo", packages=("pettingzoo", "multi_agent_ale_py", "ale_py", "cv2"),
          variants=("ppo_pettingzoo_ma_atari",),
          examples=("pong_v3", "surround_v2", "tennis_v3"), platforms=(LINUX, MAC)),
    Suite(name="Brax", extra="brax", packages=("brax", "jax"),
          variants=("ppo_continuous_action_isaacgym", "ppo_continuous_action_isaacgym_hands"),
          examples=("Ant", "Humanoid"), platforms=EVERYWHERE),
)

EXTRAS = {
    "jax": (("jax", "flax", "optax"), "--framework jax"),
    "minigrid": (("minigrid",), "the presets of MiniGrid"),
    "wandb": (("wandb",), "--track, --logger wandb"),
    "mlflow": (("mlflow",), "--logger mlflow"),
    "trackio": (("trackio",), "--logger trackio"),
    "bench": (("rliable", "pandas"), "proximo report and compare"),
    "tune": (("optuna",), "proximo tune"),
    "ray": (("ray",), "proximo bench, tune and pbt --on ray"),
    "slurm": (("submitit",), "proximo bench, tune and pbt --on slurm"),
    "rate": (("openskill",), "proximo rate"),
    "export": (("onnx", "onnxscript", "onnxruntime"), "proximo export --to onnx"),
    "hub": (("huggingface_hub",), "proximo push and pull with hub:USER/NAME"),
}


def missing(packages: tuple[str, ...]) -> list[str]:
    """Return the modules that are not installed; nothing is imported."""
    return [package for package in packages if find_spec(package) is None]


def pip_command(extra: str) -> str:
    """Return the command that installs an extra, or several that are joined by commas."""
    return f'pip install "proximo[{extra}]"' if extra else "pip install proximo"


def variant_listing() -> str:
    """Return the variants, one line each."""
    rows = [f"  {name:40}{_first_line(variant.config)}" for name, variant in VARIANTS.items()]
    return "\n".join(["Variants", *rows])


def _first_line(kind: type) -> str:
    line = (kind.__doc__ or "").strip().splitlines()[0]
    return line.partition(": ")[2] or line


def listing() -> str:
    """Return the suites of environments and the extras: what is installed, and how to install the rest."""
    blocks = [_suite_block(suite) for suite in SUITES]
    width = max(map(len, EXTRAS))
    extras = [f"  {name:{width}}  {_state(packages, name)}  ({use})" for name, (packages, use) in EXTRAS.items()]
    platforms = f"\nPyPI has wheels for these platforms; only {LINUX} was tested."
    return "\n".join(["Environments", *blocks, platforms, "", "Also", *extras, "",
                      "`proximo train VARIANT --help-all` explains every hyper-parameter of a variant."])


def _suite_block(suite: Suite) -> str:
    rows = (("variants", suite.variants), ("for example", suite.examples), ("wheels for", suite.platforms))
    lines = [f"  {label:12}{', '.join(values)}" for label, values in rows]
    return "\n".join([f"\n{suite.name}: {_state(suite.packages, suite.extra)}", *lines])


def _state(packages: tuple[str, ...], extra: str) -> str:
    lacking = missing(packages)
    return f"not installed (no {', '.join(lacking)}): {pip_command(extra)}" if lacking else "installed"
