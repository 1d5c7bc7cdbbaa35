"""proximo pbt: population-based training in rounds; the same command continues after a stop.

A round has a folder of its own, with one ordinary run for each member. It begins as a copy of the run that the member
continues, and `train --resume auto` continues it with the member's values. Nothing changes in the round before, so that
a round which was interrupted continues as if it had not been. Earlier rounds lose their checkpoints.
"""

import math
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from proximo.bench.files import AGAIN, read_record, write_record
from proximo.bench.jobs import Job
from proximo.bench.names import ASIDE, folder_name
from proximo.bench.places.choice import open_place, where_problems
from proximo.bench.population import Member, Population, first_members, load_population, next_members, settings_of
from proximo.bench.process import COMMAND, Work, log_path, record_if_finished, record_path
from proximo.bench.progress import BenchState
from proximo.bench.records import EvaluationFile, PopulationRecord, Summary
from proximo.bench.runner import run_jobs
from proximo.bench.task import HERE, Where
from proximo.errors import FilesError, UsageError, notify
from proximo.models.curves import newest_mean
from proximo.runs.command_line import pasted
from proximo.runs.folder.checkpoint import newest_checkpoint, remove_checkpoints
from proximo.runs.folder.files import POPULATION_FILE, read_json, refuse_links
from proximo.runs.folder.lock import locked
from proximo.runs.folder.writing import reason
from proximo.runs.interrupts.sigterm import interrupt_on_sigterm

NO_SCORE = ' (no episode has ended in the round before: use longer rounds, or metric = "evaluation")'
NOT_COPIED = ("summary.json", "eval.json", ".lock", "videos")  # of a run that another member continues


class Round(NamedTuple):
    """A round of a population."""

    number: int
    """from 1"""
    folder: Path
    members: list[Member]
    jobs: list[Job]


def pbt(file: str | Path, where: Where = HERE, out: str | Path = "", rounds: int | None = None,
        command: Sequence[str] = COMMAND) -> int:
    """Train the rounds that a population still lacks, and log the best member.

    Args:
        file: The file of the population.
        where: Where runs are trained, and how many at the same time.
        out: The folder of the rounds and of pbt.json; empty: runs/pbt/NAME. All machines must see it under this name.
        rounds: Rounds in place of those of the file. With one round the members are a random search.
        command: The words that start Proximo.

    Returns:
        The exit code. 0: all rounds have finished; 1: every member has failed; 130 or 143: interrupted.

    Raises:
        UsageError: The file or an argument is wrong, or the folder contains another population.
        FilesError: pbt.json is damaged.
    """
    population = load_population(file, rounds)
    if problems := where_problems(where):
        raise UsageError("\n".join(problems))
    folder = Path(out or Path("runs") / "pbt" / folder_name(population.name))
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder), interrupt_on_sigterm():
        done = read_journal(folder, population)
        prune_checkpoints(done)
        place = open_place(where, folder)
        try:
            while len(done) < population.rounds:
                now = _next_round(folder, population, done)
                work = Work(folder=now.folder, place=place, where=where, command=tuple(command))
                if (code := _play(work, now, done, population)) != 0:
                    return code
                write_journal(folder, population, done)
                prune_checkpoints(done)
        finally:
            place.close()
        return _report_best(folder, population, done[-1])


def read_journal(folder: Path, population: Population) -> list[Round]:
    """Return the rounds that have finished.

    Raises:
        UsageError: They are those of another population.
        FilesError: The file is damaged.
    """
    try:
        content = read_json(folder / POPULATION_FILE, PopulationRecord)
    except FileNotFoundError:
        return []
    if different := [f"{name}={content['file'].get(name)!r} instead of {value!r}"
                     for name, value in _file_record(population).items() if content["file"].get(name) != value]:
        raise UsageError(f"{folder} contains another population: {', '.join(different)}. Choose another folder with "
                         "--out.")
    rounds = [[Member(values=one["values"], seed=one["seed"], parent=one["parent"], score=one["score"],
                      failed=one["failed"]) for one in members] for members in content["rounds"]]
    if not all(len(members) == population.population and all(one.values.keys() == population.space.keys()
                                                             for one in members) for members in rounds):
        raise FilesError(f"{folder / POPULATION_FILE} has other members than {population.population} with values of "
                         f"{', '.join(population.space)}. Choose another folder with --out.")
    return [make_round(folder, population, number, members) for number, members in enumerate(rounds, 1)]


def write_journal(folder: Path, population: Population, done: Sequence[Round]) -> None:
    """Write what the command continues from."""
    write_record(folder / POPULATION_FILE, {"file": _file_record(population),
                                            "rounds": [[one._asdict() for one in each.members] for each in done]})


def prune_checkpoints(done: Sequence[Round]) -> None:
    """Remove the checkpoints of all rounds but the newest one, with which the next round begins.

    Raises:
        FilesError: A folder is a link: the checkpoints of another run would be removed.
    """
    for earlier in done[:-1]:
        for job in earlier.jobs:
            refuse_links([earlier.folder / each for each in job.folder.parents])
            remove_checkpoints(earlier.folder / job.folder)


def make_round(folder: Path, population: Population, number: int, members: list[Member]) -> Round:
    """Return a round with the jobs of its members, which train until the end of the round."""
    jobs = [Job(variant=population.variant, env_id=population.env_id, seed=one.seed, label=f"member-{m:02}",
                steps=population.steps * number // population.rounds, overrides=settings_of(population, one.values),
                evaluate=population.metric == "evaluation")
            for m, one in enumerate(members)]
    return Round(number=number, folder=folder / f"round-{number:03}", members=members, jobs=jobs)


def copy_run(source: Path, folder: Path, job: Job) -> None:
    """Begin a job as a copy of a finished run; a copy that exists is complete.

    The record of the job comes first: a run without one would be moved aside.

    Raises:
        FilesError: The copy cannot be written; nothing of it stays.
    """
    run_dir = folder / job.folder
    if run_dir.exists():
        return
    beside = run_dir.with_name(f".{run_dir.name}.copy{ASIDE}")
    shutil.rmtree(beside, ignore_errors=True)
    try:
        shutil.copytree(source, beside, symlinks=True, ignore=shutil.ignore_patterns(*NOT_COPIED))
        write_record(record_path(folder, job), {"key": job.key})
        beside.rename(run_dir)
    except OSError as error:
        shutil.rmtree(beside, ignore_errors=True)
        if isinstance(error, FilesError):
            raise
        cause = error.args[0][0][2] if isinstance(error, shutil.Error) else reason(error)  # the first of many
        raise FilesError(f"{source} could not be copied to {run_dir} ({cause}). Free disk space or restore the folder"
                         f"{AGAIN}.") from error


def forget_unsaved(run_dir: Path) -> bool:
    """Remove the summary of a run that was killed before its last checkpoint: training to the end again writes both.

    The next round continues from that checkpoint.

    Returns:
        Whether there was such a summary.
    """
    steps = read_record(run_dir / "summary.json", Summary).get("steps")
    kept = None if steps is None else newest_checkpoint(run_dir)
    unsaved = steps is not None and (kept is None or kept["state"]["steps"] != steps)
    if unsaved:
        (run_dir / "summary.json").unlink()
    return unsaved


def score_of(run_dir: Path, metric: str, begin: int) -> float | None:
    """Return the mean of the evaluation, or of the newest 100 episodes after step `begin`; None if no episode ended."""
    if metric == "evaluation":
        return read_record(run_dir / "eval.json", EvaluationFile).get("episodic_return_mean")
    return newest_mean(run_dir, metric, begin)


def first_step(done: Sequence[Round], member: Member) -> int:
    """Return the step at which a member begins a round: that at which the run it continues has ended.

    A run ends with a whole iteration, before the last step of its round.
    """
    if member.parent is None:
        return 0
    source = done[-1].folder / done[-1].jobs[member.parent].folder
    return int(read_record(source / "summary.json", Summary).get("steps", 0))


def _next_round(folder: Path, population: Population, done: Sequence[Round]) -> Round:
    """Return the round that follows, with the copies that its members begin as."""
    if not done:
        return make_round(folder, population, 1, first_members(population))
    before, number = done[-1], len(done) + 1
    now = make_round(folder, population, number, next_members(population, before.members, number))
    for job, one in zip(now.jobs, now.members):
        if one.parent is not None:
            copy_run(before.folder / before.jobs[one.parent].folder, now.folder, job)
    return now


def _play(work: Work, now: Round, done: list[Round], population: Population) -> int:
    """Train the members of a round and add it with their scores to `done`; return an exit code, 0: it has finished."""
    copied = sum(one.parent not in (None, m) for m, one in enumerate(now.members))
    unscored = bool(done) and all(one.score is None for one in done[-1].members)
    notify(f"round {now.number} of {population.rounds}: whole iterations up to step {now.jobs[0].steps:,}, "
           f"members that were replaced: {copied}{NO_SCORE * unscored}")
    state = BenchState()
    for job in now.jobs:
        forget_unsaved(work.folder / job.folder)
        (state.done if record_if_finished(work.folder, job) else state.waiting).append(job)
    if code := run_jobs(work, state):
        return code
    failed = [job for job, _ in state.failed]
    if any(forget_unsaved(work.folder / job.folder) for job in now.jobs if job not in failed):
        return _play(work, now, done, population)
    for job, lines in state.failed:
        notify(f"failed: {job.folder} ({log_path(work.folder, job)})\n{lines}")
    members = [one._replace(failed=True) if job in failed else
               one._replace(score=score_of(work.folder / job.folder, population.metric, first_step(done, one)))
               for job, one in zip(now.jobs, now.members)]
    if len(failed) == len(members):
        notify("Every member has failed. The same command tries this round again.")
        return 1
    done.append(now._replace(members=members))
    return 0


def _report_best(folder: Path, population: Population, last: Round) -> int:
    order = [(not one.failed, -math.inf if one.score is None else one.score) for one in last.members]
    number = order.index(max(order))
    best, run_dir = last.members[number], last.folder / last.jobs[number].folder
    write_record(folder / "best.json", {"value": best.score, "params": best.values, "run": str(run_dir)})
    chosen = " ".join(f"{name}={value}" for name, value in best.values.items())
    score = "no episode has ended" if best.score is None else f"{best.score:.6g}"
    notify(f"best of {population.population} members: {score} with {chosen} at the end\n"
           f"Next: proximo eval {pasted(run_dir, *last.jobs[number].import_flags())}")
    return 0


def _file_record(population: Population) -> dict[str, Any]:
    return {name: value for name, value in population._asdict().items() if name != "name"}
