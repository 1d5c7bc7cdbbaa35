"""The commands that take a trained agent elsewhere: export."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from proximo.cli.loading import model_of_run
from proximo.cli.model_commands import RunFolder, arguments


@dataclass
class ExportArguments:
    """Write a trained agent to one file that acts without Proximo, with normalisation, memory and masks inside."""

    run: RunFolder
    """folder of a run or of a model"""
    to: Annotated[str, tyro.conf.arg(metavar="onnx|pt2", help_behavior_hint="(default: by --out, otherwise onnx)")] = ""
    """format: onnx (onnxruntime and others), or pt2 (torch.export.load)"""
    out: Annotated[Path | None, tyro.conf.arg(help_behavior_hint="(default: RUN/agent.onnx or RUN/agent.pt2)")] = None
    """the file"""
    also: Annotated[str, tyro.conf.arg(name="with", metavar="logits|mean", help_behavior_hint="(default: none)")] = ""
    """also return the logits of discrete actions, or the mean of continuous ones before clipping"""
    mask: bool = True
    """an input for action masks, where actions can be masked"""
    best: bool = False
    """export the best model of the evaluations during training (train --eval-every)"""


def deploy_command(name: str, words: list[str]) -> int:
    """Run one of these commands and return its exit code."""
    return export_command(arguments(ExportArguments, words, name))


def export_command(args: ExportArguments) -> int:
    """Write the file, and print its path, inputs and outputs."""
    from proximo.export.files import export_model

    out = args.out or args.run / f"agent.{args.to or 'onnx'}"
    exported = export_model(model_of_run(args.run, args.best), out, args.to, args.also, args.mask)
    print(out)
    for label, ports in (("inputs", exported.inputs), ("outputs", exported.outputs)):
        print(f"  {label}: {', '.join(port.text for port in ports)}")
    return 0
