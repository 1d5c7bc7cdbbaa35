"""The words of `proximo bench, report, compare and tune`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from proximo.cli.flags import parse_flags
from proximo.config import Config
from proximo.errors import UsageError


@dataclass
class BenchArguments:
    """Train every (variant, environment, seed) of a small file, each in a process of its own; the same command goes on
    where it stopped. Every other flag of `proximo train` holds for all runs: --framework jax, --compile, --track."""

    file: Annotated[Path, tyro.conf.Positional]
    """a benchmark set, such as benchmarks/small.toml"""
    seeds: int | None = None
    """seeds of each environment, from 1; default: the file's"""
    workers: int = 1
    """runs at the same time"""
    out: str = ""
    """folder of all runs; default: runs/bench/NAME"""
    ablate: str = ""
    """implementation details to change, one set of runs each: norm_adv,clip_vloss,anneal_lr,..."""


@dataclass
class ReportArguments:
    """One page (HTML, Markdown, CSV) of a benchmark's runs: curves, intervals, published values, verdicts."""

    directory: Annotated[Path, tyro.conf.Positional]
    """folder of runs, as bench made it"""
    out: str = ""
    """folder or NAME.html; default: in the folder of runs"""


@dataclass
class CompareArguments:
    """Two sets of runs, paired by environment and seed; exit code 1 where the second is significantly worse."""

    old: Annotated[Path, tyro.conf.Positional]
    """folder of runs to compare with"""
    new: Annotated[Path, tyro.conf.Positional]
    """folder of runs that should not be worse"""
    metric: str = ""
    """what is compared; default: the mean return of the last 100 training episodes"""


@dataclass
class TuneArguments:
    """Search hyper-parameters by Optuna; the same command goes on where it stopped."""

    file: Annotated[Path, tyro.conf.Positional]
    """a search: variant, environments, seeds, ranges"""
    workers: int = 1
    """runs at the same time"""
    out: str = ""
    """folder of trials and study; default: runs/tune/NAME"""
    trials: int | None = None
    """trials in all; default: the file's"""


def bench_command(name: str, words: list[str]) -> int:
    """Run one of the four commands; returns its exit code."""
    match name:
        case "bench":
            from proximo.bench.runner import bench

            args, flags = tyro.cli(BenchArguments, args=words, prog="proximo bench", return_unknown_args=True)
            return bench(args.file, args.seeds, args.workers, args.out, [x for x in args.ablate.split(",") if x],
                         parse_flags(Config, flags))
        case "report":
            from proximo.bench.report import report

            report_words = tyro.cli(ReportArguments, args=words, prog="proximo report")
            print(report(report_words.directory, report_words.out))
            return 0
        case "compare":
            from proximo.bench.compare import compare

            compare_words = tyro.cli(CompareArguments, args=words, prog="proximo compare")
            return compare(compare_words.old, compare_words.new, compare_words.metric)
        case "tune":
            from proximo.bench.tune import tune

            tune_words = tyro.cli(TuneArguments, args=words, prog="proximo tune")
            return tune(tune_words.file, tune_words.workers, tune_words.out, tune_words.trials)
    raise UsageError(f"{name} is no command; `proximo --help` lists them")
