"""The commands that take a trained agent elsewhere: export, card, push, pull and verify."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from proximo.cli.arguments import AllowImport, RunFolder, arguments, check_least
from proximo.cli.eval_progress import shown_progress
from proximo.cli.loading import load_run, missing_run, model_of_run
from proximo.errors import notify
from proximo.models.evaluate import MAX_STEPS
from proximo.models.export.ports import obs_changes
from proximo.runs.command_line import pasted
from proximo.runs.logs.output import return_text
from proximo.runs.settings.resolve import usage_errors

Place = Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="hub:USER/NAME|DIR")]


@dataclass
class ExportArguments:
    """Write a trained agent to one file that acts without Proximo, with normalisation, recurrent state and masks."""

    run: RunFolder
    """folder of a run or of a model"""
    to: Annotated[str, tyro.conf.arg(metavar="onnx|pt2", help_behavior_hint="(default: by --out, otherwise onnx)")] = ""
    """format: onnx (onnxruntime and others), or pt2 (torch.export.load)"""
    out: Annotated[Path | None, tyro.conf.arg(
        metavar="FILE", help_behavior_hint="(default: RUN/agent.onnx or RUN/agent.pt2)")] = None
    """the file"""
    also: Annotated[str, tyro.conf.arg(name="with", metavar="logits|mean", help_behavior_hint="(default: none)")] = ""
    """also return the logits of discrete actions, or the mean of continuous ones before clipping"""
    mask: bool = True
    """an input for action masks, where actions can be masked"""
    best: bool = False
    """export the best model of the evaluations during training (train --eval-every)"""


@dataclass
class CardArguments:
    """Play episodes with a trained model, and write its card: RUN/model/README.md and eval.json, with its score."""

    run: RunFolder
    """folder of a run or of a model"""
    episodes: int = 100
    """episodes to play"""
    deterministic: bool = True
    """take the most likely action; --no-deterministic samples one"""
    seed: int = 0
    """seed of environments and actions"""
    max_steps: int = MAX_STEPS
    """longest episode, in steps; an environment with a longer one plays no further episodes"""
    best: bool = False
    """the best model of the evaluations during training (train --eval-every)"""
    allow_import: AllowImport = ()
    """modules and scripts that the run may import for its environment"""


@dataclass
class PushArguments:
    """Copy a model with its card to the Hugging Face Hub or to a folder."""

    run: RunFolder
    """folder of a run or of a model, with a card"""
    to: Place
    """repository or folder"""
    private: bool = False
    """create the repository as a private one"""
    best: bool = False
    """the best model of the evaluations during training (train --eval-every)"""


@dataclass
class PullArguments:
    """Copy a shared model from the Hugging Face Hub or from a folder. Nothing in it is run."""

    source: Place
    """repository or folder"""
    run: RunFolder
    """the new folder; the model will be in RUN/model"""


@dataclass
class VerifyArguments:
    """Play the episodes of a card again, with the same seeds. The exit code is 0 if the score lies in its interval."""

    run: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="DIR")]
    """folder of a run or of a model, with a card"""
    best: bool = False
    """the best model of the evaluations during training (train --eval-every)"""
    allow_import: AllowImport = ()
    """modules and scripts that the model may import for its environment"""


def deploy_command(name: str, words: list[str]) -> int:
    """Run one of these commands and return its exit code."""
    match name:
        case "export":
            return export_command(arguments(ExportArguments, words, name))
        case "card":
            return card_command(arguments(CardArguments, words, name))
        case "push":
            return push_command(arguments(PushArguments, words, name))
        case "pull":
            return pull_command(arguments(PullArguments, words, name))
        case _:
            return verify_command(arguments(VerifyArguments, words, name))


def export_command(args: ExportArguments) -> int:
    """Write the file, and print its path, inputs and outputs."""
    from proximo.models.export.files import chosen_format, export_model

    out = args.out or args.run / f"agent.{args.to or 'onnx'}"
    check_least(args, *missing_run(args.run), *usage_errors(lambda: chosen_format(out, args.to, args.also)))
    model = model_of_run(args.run, args.best)
    exported = export_model(model, out, args.to, args.also, args.mask)
    if changes := obs_changes(model):
        shown = ", ".join(f"{name}={value}" for name, value in changes.items())
        notify(f"The file takes observations as the environment returns them with {shown}. Apply "
               f"{'what that function does' if 'make_envs' in changes else 'these settings'} before the file.")
    print(out)
    for label, ports in (("inputs", exported.inputs), ("outputs", exported.outputs)):
        print(f"  {label}: {', '.join(port.text for port in ports)}")
    return 0


def card_command(args: CardArguments) -> int:
    """Write the card, and print its score and its path."""
    from proximo.models.export.card import MOST_EPISODES, PAGE, model_folder, write_card
    from proximo.models.play import HowPlayed

    many = [f"--episodes {args.episodes} must be at most {MOST_EPISODES}"] * (args.episodes > MOST_EPISODES)
    check_least(args, *missing_run(args.run), *many, episodes=1, seed=0, max_steps=1)
    model, parts = load_run(args.run, args.allow_import, args.best, for_card=True)
    folder = model_folder(args.run, args.best)
    how = HowPlayed(episodes=args.episodes, deterministic=args.deterministic, seed=args.seed, max_steps=args.max_steps)
    with shown_progress(model.cfg.env_id, args.episodes) as show:
        score = write_card(folder, model, parts, how, show)
    mean, low, high = map(return_text, (score.mean, score.low, score.high))
    print(f"{model.cfg.env_id}: {mean} (95 % interval {low} to {high})")
    print(folder / PAGE)
    return 0


def push_command(args: PushArguments) -> int:
    """Copy a model and print where it is."""
    from proximo.models.export.card import model_folder
    from proximo.models.export.shared import place, push

    print(push(model_folder(args.run, args.best), place(args.to), args.private))
    return 0


def pull_command(args: PullArguments) -> int:
    """Copy a shared model, and print what its card claims."""
    from proximo.models.export.shared import claimed_score, place, pull

    pull(place(args.source), args.run)
    print(args.run)
    if claimed := claimed_score(args.run):
        print(f"  Its card claims {claimed}. To play these episodes again: proximo verify {pasted(args.run)}")
    return 0


def verify_command(args: VerifyArguments) -> int:
    """Play the episodes of a card again; return 1 if the score lies outside of its interval."""
    from proximo.models.export.card import confirms, model_folder, read_card, verify_card

    model, parts = load_run(args.run, args.allow_import, args.best, for_card=True)
    folder = model_folder(args.run, args.best)
    _, how = read_card(folder)
    with shown_progress(model.cfg.env_id, how.episodes) as show:
        claimed, now = verify_card(folder, model, parts, show)
    holds = confirms(now, claimed)
    mean, said, low, high = map(return_text, (now.mean, claimed.mean, claimed.low, claimed.high))
    print(f"{model.cfg.env_id}: {mean} now, {said} on the card (95 % interval {low} to {high}): "
          f"{'the card holds' if holds else 'THE CARD DOES NOT HOLD'}")
    return 0 if holds else 1
