"""The program around the training loop of an ejected file, for torch. MAKE_ENVS and MAKE_BOX are names by then."""

import argparse
import csv
import math
import time
from collections import deque
from dataclasses import fields
from typing import Any

import numpy as np
from torch import nn

from proximo.config import Config
from proximo.on_torch.assemble import assemble
from proximo.on_torch.loss import ppo_loss
from proximo.on_torch.train import train
from proximo.protocols import Spec


def make_agent(spec: Spec, cfg: Any) -> nn.Module:
    return assemble(spec, cfg, MAKE_BOX)  # type: ignore[name-defined]  # noqa: F821


def main() -> None:
    """Read the flags, train, show the progress, and write progress.csv and weights.npz."""
    parser = argparse.ArgumentParser(formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    for field in fields(Config):
        if not isinstance(field.default, tuple):
            parser.add_argument(f"--{field.name.replace('_', '-')}", type=type(field.default), default=field.default)
    cfg = Config(**vars(parser.parse_args()))
    start, returns = time.perf_counter(), deque[float](maxlen=100)
    with open("progress.csv", "w", newline="") as file:
        for it in train(cfg, MAKE_ENVS, make_agent, ppo_loss, None):  # type: ignore[name-defined]  # noqa: F821
            returns.extend(it.finished.ret.tolist())
            mean = sum(returns) / len(returns) if returns else math.nan
            speed = int(it.steps / (time.perf_counter() - start))
            row = {"global_step": it.steps, "SPS": speed, "episodic_return": mean, **it.stats}
            writer = csv.DictWriter(file, row)
            if it.iteration == 1:
                writer.writeheader()
            writer.writerow(row)
            print(f"step {it.steps}  return {mean:.2f}  SPS {speed}", flush=True)
    np.savez("weights.npz", **it.weights())  # type: ignore[arg-type]
