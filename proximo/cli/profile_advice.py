"""Advice from the shares of an iteration, and their table and picture."""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from proximo.config import Config
from proximo.models.pictures import plain_style, save_figure
from proximo.problems import BY_ITSELF, engine_of
from proximo.runs.shares import Shares

LARGE = 0.35  # share of a part from which on it is worth a change
NOTICEABLE = 0.1  # the same for log and checkpoints, which should take next to nothing
SLOW_STEP = 2e-4  # seconds of one environment's step from which on a worker process pays for itself
COLORS = {"environment": "#0072B2", "acting": "#56B4E9", "evaluation and advantages": "#009E73", "learning": "#D55E00",
          "compiled iteration": "#CC79A7", "logging": "#E69F00", "checkpoints": "#999999"}  # Okabe & Ito 2008


class Machine(NamedTuple):
    """What is available for advice to recommend."""

    cores: int
    cuda: bool
    jax_task: bool  # the environment is written in JAX too
    envpool: bool  # the package is installed


def advice(shares: Shares, cfg: Config, machine: Machine) -> list[str]:
    """Return one sentence for each change that may make training faster, the largest share first."""
    found: list[tuple[float, str]] = []
    for part, suggest in (("environment", _for_environments), ("acting", _for_acting), ("learning", _for_learning)):
        share = shares.share(part)
        if share >= LARGE:
            lines = suggest(shares, cfg, machine)
            limit = (f"{part.capitalize()}: {share:.0%} of the time. Without it, training would be "
                     f"{1 / (1 - share):.1f} times as fast.")
            found += [(share, line) for line in [limit, *lines]]
    found.sort(key=lambda one: -one[0])  # stable: the sentences of a part stay together
    if (share := shares.share("checkpoints")) >= NOTICEABLE:
        found.append((share, f"Checkpoints: {share:.0%} of the time. --checkpoint-every {10 * cfg.checkpoint_every} "
                             "writes fewer."))
    if (share := shares.share("logging")) >= NOTICEABLE:
        found.append((share, f"Logging: {share:.0%} of the time, because iterations are short. A larger --num-steps "
                             "writes fewer lines."))
    if "compiled iteration" in shares.seconds:
        found.append((1.0, "Environments, acting and learning are one compiled function, whose parts cannot be timed. "
                           "More --num-envs, or --num-seeds for several runs at once, use the machine better."))
    return [line for _, line in found] or ["No part dominates: there is no simple change."]


def _for_environments(shares: Shares, cfg: Config, machine: Machine) -> list[str]:
    lines = []
    one = shares.seconds["environment"] / shares.steps
    if machine.jax_task and cfg.framework == "torch":
        lines.append("--framework jax plays this task inside the compiled function.")
    by_itself = BY_ITSELF.get(engine_of(cfg))
    if not cfg.env_workers and not by_itself and machine.cores > 1 and cfg.num_envs > 1:
        workers = max(k for k in range(1, machine.cores + 1) if cfg.num_envs % k == 0)
        if one >= SLOW_STEP and workers > 1:
            lines.append(f"One step takes {1e3 * one:.2f} ms: --env-workers {workers} uses {workers} cores for it.")
        elif one < SLOW_STEP:
            lines.append(f"One step takes {1e3 * one:.3f} ms, too little for worker processes.")
    if "envpool" in cfg.limits.engines and cfg.engine != "envpool" and machine.envpool:
        lines.append("--engine envpool steps the environments in C++, if it has this one.")
    return lines


def _for_acting(_: Shares, cfg: Config, machine: Machine) -> list[str]:
    lines = ["--compile makes the calls of a small network cheaper."] * _could_compile(cfg, machine)
    if not _on_cpu(cfg, machine) and cfg.model == "mlp":
        lines.append("A small network is faster with --device cpu.")
    wider = f"--num-envs {4 * cfg.num_envs} --num-steps {max(1, cfg.num_steps // 4)}"
    return [*lines, f"{wider} acts in fewer, larger calls. This changes what is learned."]


def _for_learning(_: Shares, cfg: Config, machine: Machine) -> list[str]:
    lines, images = [], cfg.model != "mlp"
    if images and cfg.threads < machine.cores and _on_cpu(cfg, machine):
        lines.append(f"--threads {machine.cores} uses all cores; the network is large enough.")
    if images and machine.cuda and cfg.device == "cpu":
        lines.append("--device cuda: this machine has a GPU, and networks of images gain from it.")
    if _could_compile(cfg, machine):
        lines.append("--compile makes the minibatch step of a small network cheaper.")
    return [*lines, f"Fewer --update-epochs than {cfg.update_epochs} learn less from each batch. This changes what is "
                    "learned."]


def _on_cpu(cfg: Config, machine: Machine) -> bool:
    return cfg.device == "cpu" or not machine.cuda


def _could_compile(cfg: Config, machine: Machine) -> bool:
    """Return whether --compile helps: a small network of torch on a CPU."""
    return cfg.framework == "torch" and not cfg.compile and cfg.model == "mlp" and _on_cpu(cfg, machine)


def table(shares: Shares) -> list[str]:
    """Return one line for each part: its share, and its milliseconds per iteration."""
    width = max(map(len, shares.seconds))
    return [f"  {part:{width}}  {shares.share(part):6.1%}  {1e3 * seconds:9.2f} ms"
            for part, seconds in shares.seconds.items()]


@plain_style()
def draw(rows: Mapping[str, Shares], out: Path) -> Path:
    """Draw one bar for each environment.

    Raises:
        UsageError: The format is unknown.
        FilesError: `out` cannot be written.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 1.4 + 0.6 * len(rows)), dpi=150, layout="constrained")
    axes = figure.subplots()
    names = [f"{name}\n{shares.sps:,.0f} steps/s" for name, shares in rows.items()]
    left = [0.0] * len(rows)
    for part, color in COLORS.items():
        widths = [100 * shares.share(part) for shares in rows.values()]
        if any(widths):
            axes.barh(names, widths, left=left, color=color, label=part, height=0.6)
            for i, width in enumerate(widths):
                if width >= 6:
                    axes.text(left[i] + width / 2, i, f"{width:.0f} %", ha="center", va="center",
                              color=_ink(color), fontsize=8)
            left = [a + b for a, b in zip(left, widths)]
    axes.set_xlim(0, 100)
    axes.set_xlabel("share of an iteration (%)")
    axes.invert_yaxis()
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside upper center", ncols=4, fontsize=8, frameon=False)
    return save_figure(figure, out)


def _ink(color: str) -> str:
    """Return the colour of text that can be read on a colour, #RRGGBB."""
    red, green, blue = (int(color[place:place + 2], 16) for place in (1, 3, 5))
    return "black" if 0.299 * red + 0.587 * green + 0.114 * blue > 140 else "white"
