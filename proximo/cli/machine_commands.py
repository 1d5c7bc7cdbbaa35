"""The commands about this installation: list and doctor."""

from pathlib import Path

from proximo.errors import UsageError

USAGES = {"list": """usage: proximo list [presets]

List the variants, the environments with example ids, and what is installed. `proximo list presets` lists the tuned
hyper-parameters of environments, with their sources.""",
          "doctor": """usage: proximo doctor [RUN/repro]

Check this installation: packages that break each other, the GPU, the compiler, rendering, disk space.
Each finding is `ok`, a `note` (something that is not installed or limits what can be done) or a `problem` (something
that is installed will fail), with the command that fixes it. The exit code is 1 if there is a problem, otherwise 0.

`proximo doctor RUN/repro` repeats the update that ended a run with exit code 4, and shows the range of
every quantity up to the first one that is not finite: rollout, weights, advantage, network, loss, gradient."""}

ARGUMENTS = {"list": "`presets` only", "doctor": "RUN/repro only, the folder of an update that failed"}


def machine_command(name: str, words: list[str]) -> int:
    """Run `list` or `doctor` and return its exit code."""
    if {"-h", "--help"} & {*words}:
        print(USAGES[name])
        return 0
    if name == "list" and words == ["presets"]:
        from proximo.runs.presets import preset_listing

        print(preset_listing())
        return 0
    if name == "doctor" and len(words) == 1 and not words[0].startswith("-"):
        return repro_command(Path(words[0]))
    if words:
        flags = [word for word in words if word.startswith("-")]
        raise UsageError(f"Unexpected argument {(flags or words[-1:])[0]!r}: `proximo {name}` takes {ARGUMENTS[name]}.")
    return list_command() if name == "list" else doctor_command()


def repro_command(folder: Path) -> int:
    """Print the quantities of an update that failed; return 1 if one is not finite."""
    from proximo.runs.folder.repro import explain_repro

    finite = True
    for finite, what in explain_repro(folder):
        print(f"{'ok   ' if finite else 'WRONG'} {what}")
    if finite:
        print("All is finite with Proximo's own loss, over the whole batch. Look at a loss function of your own, or at "
              "a minibatch with few valid rows.")
    return 0 if finite else 1


def list_command() -> int:
    """Print variants and suites."""
    from proximo.cli.suites import listing, variant_listing

    print(f"{variant_listing()}\n\n{listing()}")
    return 0


def doctor_command() -> int:
    """Print the findings; return 1 if one of them is a problem."""
    from proximo.cli.doctor import doctor, report

    findings = doctor()
    print(report(findings))
    return 1 if any(finding.level == "problem" for finding in findings) else 0
