"""The commands on many runs: bench, report, compare, tune and pbt."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from proximo.bench.task import Where
from proximo.catalog import VARIANTS
from proximo.cli.arguments import AllowImport, Arguments, arguments, known_arguments
from proximo.cli.flags import field_name, parse_flags, read_flags, split_flags
from proximo.config import Config
from proximo.errors import UsageError


def named(metavar: str) -> Any:
    """Return how a positional argument is called in a usage line."""
    return tyro.conf.arg(metavar=metavar)


def hint(default: str, metavar: str | None = None) -> Any:
    """Return what the help says about the default and the value of an argument."""
    return tyro.conf.arg(help_behavior_hint=f"(default: {default})", metavar=metavar)


@dataclass(frozen=True)
class WhereArguments(Where):
    """Where, with the defaults in words."""

    workers: Annotated[int | None, hint("1; bench on Ray and SLURM: as many as there is room for", "INT")] = None
    """runs at the same time"""
    job_threads: Annotated[int | None, hint("1 on Ray and SLURM; on this machine as in proximo train", "INT")] = None
    """threads of each run, also passed as --threads"""
    address: Annotated[str, hint("RAY_ADDRESS, otherwise a new cluster on this machine", "HOST:PORT")] = ""
    """a Ray cluster"""
    job_memory: Annotated[str, hint("left to Ray and SLURM")] = ""
    """memory of each run on Ray and SLURM, such as 4GB or 500MB"""
    slurm_partition: Annotated[str, hint("that of the cluster")] = ""
    """partition of SLURM"""
    slurm_constraint: Annotated[str, hint("none")] = ""
    """features that a node must have, such as one type of CPU"""


@dataclass
class BenchArguments:
    """Train every (variant, environment, seed) of a small file, each in a process of its own.

    The same command continues a benchmark that was stopped. Every other flag of `proximo train` applies to all runs,
    such as --framework jax, --compile or --track. docs/scale.md lists the keys of the file.
    """

    file: Annotated[Path | None, tyro.conf.Positional, named("FILE"), hint("none")] = None
    """a benchmark file, such as benchmarks/small.toml"""
    status: Annotated[Path | None, hint("none", "DIR")] = None
    """folder of a benchmark: print which runs are done, running, queued and failed, and where; nothing is started"""
    seeds: Annotated[int | None, hint("as in the file", "INT")] = None
    """number of seeds of each environment, from 1"""
    where: Annotated[WhereArguments, tyro.conf.arg(name="")] = WhereArguments()
    """where runs are trained"""
    out: Annotated[str, hint("runs/bench/NAME")] = ""
    """folder of all runs"""
    ablate: Annotated[str, hint("none")] = ""
    """implementation details to change, one set of runs each: norm_adv,clip_vloss,anneal_lr,..."""
    allow_import: AllowImport = ()
    """modules and scripts that environments of the file may name"""


@dataclass
class ReportArguments:
    """Write one page (HTML, Markdown, CSV) about the runs of a benchmark: curves, intervals, published scores."""

    directory: Annotated[Path, tyro.conf.Positional, named("DIR")]
    """folder of runs, as bench writes it"""
    out: Annotated[str, hint("DIR/report.html")] = ""
    """folder or NAME.html"""


@dataclass
class CompareArguments:
    """Compare two sets of runs, paired by seed; the exit code is 1 if NEW is significantly worse or has failed runs."""

    old: Annotated[Path, tyro.conf.Positional, named("OLD")]
    """folder of runs to compare with"""
    new: Annotated[Path, tyro.conf.Positional, named("NEW")]
    """folder of runs that should not be worse"""
    metric: Annotated[str, hint("what measures the variant")] = ""
    """what is compared: episodic_return or episodic_length of the last 100 training episodes, or evaluation (return)"""


@dataclass
class TuneArguments:
    """Search hyper-parameters with Optuna; the same command continues a search that was stopped.

    A search file names the variant, the environments, the steps, and in [space] the values that are tried. To copy:
    benchmarks/tune/cartpole.toml of the repository. docs/searches.md lists all keys.
    """

    file: Annotated[Path, tyro.conf.Positional, named("FILE")]
    """a search file, such as benchmarks/tune/cartpole.toml"""
    where: Annotated[WhereArguments, tyro.conf.arg(name="")] = WhereArguments()
    """where runs are trained"""
    out: Annotated[str, hint("runs/tune/NAME")] = ""
    """folder of trials and study"""
    trials: Annotated[int | None, hint("as in the file", "INT")] = None
    """trials in total"""
    allow_import: AllowImport = ()
    """modules and scripts that environments of the file may name"""


@dataclass
class PbtArguments:
    """Train a population in rounds: after each, the worst quarter copies one of the best and changes its values.

    The same command continues a population that was stopped.
    """

    file: Annotated[Path, tyro.conf.Positional, named("FILE")]
    """a file such as benchmarks/pbt/cartpole.toml: variant, environment, members, rounds, ranges"""
    where: Annotated[WhereArguments, tyro.conf.arg(name="")] = WhereArguments()
    """where runs are trained"""
    out: Annotated[str, hint("runs/pbt/NAME")] = ""
    """folder of the rounds"""
    rounds: Annotated[int | None, hint("as in the file", "INT")] = None
    """rounds; with 1 the members are a random search with the same budget"""
    allow_import: AllowImport = ()
    """modules and scripts that the environment of the file may name"""


def bench_command(name: str, words: list[str]) -> int:
    """Run one of these commands and return its exit code."""
    match name:
        case "bench":
            args, flags = known_arguments(BenchArguments, words, name)
            return _bench(args, flags)
        case "report":
            from proximo.bench.report.main import report

            report_args = arguments(ReportArguments, words, name)
            print(report(report_args.directory, report_args.out))
            return 0
        case "compare":
            from proximo.bench.compare import compare

            compare_args = arguments(CompareArguments, words, name)
            text, worse = compare(compare_args.old, compare_args.new, compare_args.metric)
            print(text)
            return int(worse)
        case "pbt":
            return _pbt(_file_arguments(PbtArguments, words, name))
        case _:
            from proximo.bench.sets import check_set_imports
            from proximo.bench.tune.main import tune
            from proximo.bench.tune.search import load_search

            tune_args = _file_arguments(TuneArguments, words, name)
            check_set_imports([load_search(tune_args.file).row], tune_args.allow_import, tune_args.file)
            return tune(tune_args.file, tune_args.where, tune_args.out, tune_args.trials)


def _bench(args: BenchArguments, flags: list[str]) -> int:
    from proximo.bench.runner import bench
    from proximo.bench.sets import check_set_imports, load_set
    from proximo.bench.status import status

    if args.status is not None:
        if flags or args != BenchArguments(status=args.status):
            raise UsageError("--status was given with other arguments. Use `proximo bench --status DIR` alone.")
        print(status(args.status))
        return 0
    if args.file is None:
        raise UsageError("proximo bench needs a benchmark file, such as benchmarks/small.toml, or --status DIR.")
    rows = load_set(args.file).rows
    check_set_imports(rows, args.allow_import, args.file)
    return bench(args.file, args.seeds, args.where, args.out, [x for x in args.ablate.split(",") if x],
                 _parse_flags([VARIANTS[row.variant].config for row in rows], flags))


def _parse_flags(kinds: Sequence[type[Config]], flags: list[str]) -> dict[str, Any]:
    """Return the values of flags, read by the class that knows most of them; bench() names the rows that lack one."""
    return parse_flags(min(kinds, key=lambda kind: len(read_flags(kind, flags)[1])), flags)


def _file_arguments(kind: type[Arguments], words: list[str], name: str) -> Arguments:
    """Fill the arguments of a command whose runs have the settings of a file.

    Raises:
        UsageError: A word is missing, unknown or not allowed. For a flag of proximo train, it has the line of the file.
    """
    args, rest = known_arguments(kind, words, name)
    problems, unknown = list[str](), list[str]()
    for flag in split_flags(rest):
        given = [flag.word if flag.inline is None else f"{flag.word}={flag.inline}", *flag.words]
        if line := _line_of_file(flag.word, given, name):
            problems.append(f"{' '.join(given):.80}: {name} takes the settings of its runs from its file. {line}")
        else:
            unknown += [word for word in given if word]
    if unknown:
        try:
            arguments(kind, ["FILE", *unknown], name)
        except UsageError as error:
            problems.append(str(error))
    if problems:
        raise UsageError("\n".join(problems))
    return args


def _line_of_file(word: str, given: list[str], name: str) -> str:
    """Return which line of the file has the meaning of a flag of proximo train; an empty text if it is none."""
    from proximo.bench.population import KEYS
    from proximo.bench.space_values import SET_BY_FILE
    from proximo.bench.tune.search import SEARCH_KEYS
    from proximo.facts import facts

    field = field_name(word)
    if field in {"tune": SEARCH_KEYS, "pbt": KEYS}[name]:
        return f"There, it is the key {field}."
    kinds = [variant.config for variant in VARIANTS.values()]
    found = [(one, kind) for one in (field, field.removeprefix("no_")) for kind in kinds if one in facts(kind)]
    if not word or not found:
        return ""
    field, kind = found[0]
    if field in SET_BY_FILE[name]:
        return f"There, {SET_BY_FILE[name][field]} sets {field}."
    value = read_flags(kind, given)[0].get(field, ...)
    if value is None:
        return f"Leave {field} out of [overrides]: a TOML file has no none."
    text = "..." if value is ... else json.dumps(value)
    return f"Write this line into [overrides]: {field} = {text}"


def _pbt(args: PbtArguments) -> int:
    from proximo.bench.pbt import pbt
    from proximo.bench.population import load_population
    from proximo.bench.sets import Row, check_set_imports

    found = load_population(args.file, args.rounds)
    row = Row(variant=found.variant, env_ids=(found.env_id,), steps=found.steps, overrides=found.overrides)
    check_set_imports([row], args.allow_import, args.file)
    return pbt(args.file, args.where, args.out, args.rounds)
