"""The curves that a reader can zoom and hover over, in the live page and in reports: their script, style and data."""

from collections.abc import Sequence
from importlib.resources import files
from math import isfinite
from typing import Any

import numpy as np

from proximo.bench.results import RunResult, metric_of

CHART_STYLE = """
[hidden]{display:none!important}
.controls{display:flex;flex-wrap:wrap;gap:.3rem 1.2rem;align-items:center;font-size:13px;margin:.4rem 0}
.controls label{display:flex;gap:.4rem;align-items:center}.controls input[type=range]{width:7rem}
.legend{display:flex;flex-wrap:wrap;gap:.3rem .5rem;max-height:6.5rem;overflow-y:auto}
.chip{font:inherit;font-size:12.5px;border:1px solid #ddd;background:none;color:inherit;
border-radius:1rem;cursor:pointer;padding:.05rem .6rem;text-align:left;overflow-wrap:anywhere}
.chip.off{opacity:.4;text-decoration:line-through}
.swatch{display:inline-block;width:.7rem;height:.7rem;box-sizing:border-box;border-radius:50%;margin-right:.4rem;vertical-align:-1px}
.grid{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,25rem),1fr));gap:.6rem 1.4rem}
.chart{position:relative;min-width:0}.chart h3{font-size:13px;margin:.3rem 0 0;overflow-wrap:anywhere}
.chart canvas{width:100%;display:block;cursor:crosshair;touch-action:pan-y}
.tip{position:absolute;top:1.6rem;pointer-events:none;background:#fffffff0;border:1px solid #ccc;border-radius:4px;
padding:.25rem .5rem;font-size:12px;max-width:70%;z-index:3;overflow-wrap:anywhere}.dim{opacity:.75}
@media(prefers-color-scheme:dark){.tip{background:#222226f0;border-color:#555}.chip{border-color:#444}}
"""


def charts_script() -> str:
    """Return the script; it defines the class Charts and does nothing by itself."""
    return files("proximo.bench.live").joinpath("charts.js").read_text(encoding="utf-8")


def curves_record(name: str, run: RunResult, names: Sequence[str]) -> dict[str, Any]:
    """Return what the curves of a run are called."""
    return {"name": name, "env_id": run.env_id, "label": run.label, "seed": run.seed, "names": list(names),
            "measure": metric_of(run.variant).removeprefix("episodic_")}


def point_rows(points: np.ndarray) -> list[list[float | None]]:
    """Return points as lists, with six digits; None where there is no number."""
    return [[float(f"{value:.6g}") if isfinite(value) else None for value in row] for row in points.tolist()]
