"""`proximo eject`: print a standalone program for a variant."""

import shlex

from proximo.cli.commands import named_class
from proximo.cli.flags import parse_flags
from proximo.errors import UsageError

USAGE = """usage: proximo eject VARIANT [--env-id ID] [--flag value ...] > my_ppo.py

Print one file that trains as the variant does, to the same weights, bit for bit, and does not need Proximo. Only what
the configuration uses is in it: read it from top to bottom, and change it. Supported are all variants that train with
torch, except those of Brax; EnvPool where it is the engine of the variant; and `ppo --framework jax` with CartPole-v1,
Acrobot-v1 or MountainCar-v0. Flags are those of `proximo train`; what cannot be ejected is refused. Checkpoints, worker
processes, compilation, several processes and GPUs are left out: ppo_atari_multigpu becomes a program of one process."""


def eject_command(words: list[str]) -> int:
    """Print the program and return the exit code."""
    if {"-h", "--help"} & {*words}:
        print(USAGE)
        return 0
    if any(word.partition("=")[0] == "--preset" for word in words):
        raise UsageError("eject takes no preset. Give its values as flags: `proximo list presets` has them.")
    variant, flags = words[0], words[1:]
    if variant.startswith("-"):
        raise UsageError(f"{variant} is not a variant. Name one first: proximo eject ppo {shlex.join(words)}")
    kind = named_class(variant, "eject ppo")
    cfg = kind(**parse_flags(kind, flags))
    from proximo.models.export.eject.eject import eject

    print(eject(cfg, variant, shlex.join(["proximo", "eject", *words])), end="")
    return 0
