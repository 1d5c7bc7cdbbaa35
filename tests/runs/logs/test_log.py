"""What a run writes, read back by other programs: csv, TensorBoard's own reader, json; costs and faults included."""

import csv
import errno
import io
import json
import math
import os
import struct
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.compat.tensorflow_stub.pywrap_tensorflow import crc32c as reference_crc32c

from proximo.config import Config
from proximo.errors import FilesError, UsageError
from proximo.runs.folder.csv_file import CsvFile
from proximo.runs.folder.run import Run
from proximo.runs.logs.console import Meter, Progress, duration
from proximo.runs.logs.events import EventFile, crc32c, crc32c_table
from proximo.runs.logs.log import Log
from proximo.types import FinishedEpisodes
from proximo.variants import Compact

QUIET = Config(logger="none", seed=7)
LOSSES = {"charts/learning_rate": 2.5e-4, "losses/value_loss": 0.1, "losses/policy_loss": -0.01}


def new_run(path: Path, variant: str = "ppo", num_iterations: int = 3, **changes) -> Run:
    path.mkdir()
    cfg = replace(QUIET, total_timesteps=512 * num_iterations, **changes)
    return Run(path, cfg, variant)


def episodes(*ends: tuple[int, int, float, int]) -> FinishedEpisodes:
    step, row, ret, length = np.array(ends, np.float64).reshape(-1, 4).T
    return FinishedEpisodes(step.astype(int), row.astype(int), ret.astype(np.float32), length.astype(int))


def rows_of(path: Path) -> list[dict[str, str]]:
    with open(path) as file:
        return list(csv.DictReader(file))


def scalars_of(folder: Path, tag: str) -> list[tuple[int, float]]:
    reader = EventAccumulator(str(folder / "tensorboard"), {"scalars": 0, "tensors": 0, "histograms": 0})
    reader.Reload()
    return [(event.step, event.value) for event in reader.Scalars(tag)]


def test_lines_reach_the_files_while_a_run_trains(tmp_path, monkeypatch):
    """Not only at its end, so that others can follow it, and a kill loses those of one second."""
    monkeypatch.setattr("proximo.runs.logs.log.FLUSH_SECONDS", 0.0)
    log = Log(new_run(tmp_path / "run"))
    for iteration in (1, 2):
        log.iteration(iteration, 512 * iteration, LOSSES, episodes((9, 0, 1.0, 9)))
        assert len(rows_of(tmp_path / "run" / "metrics.csv")) == len(rows_of(tmp_path / "run" / "episodes.csv")) == iteration
        assert len(scalars_of(tmp_path / "run", "losses/value_loss")) == iteration
    log.close()


def test_files_hold_what_was_logged_under_the_seeds_names(tmp_path):
    """Against the csv module, TensorBoard's reader and means worked out by hand."""
    run = new_run(tmp_path / "run", num_iterations=2)
    folder, log = run.folder, Log(run)
    log.iteration(1, 512, LOSSES, episodes((100, 0, 10, 10), (300, 3, 20, 21)))
    log.iteration(2, 1024, LOSSES | {"losses/value_loss": 1 / 3}, episodes())
    summary = log.summary()
    log.close()
    first, second = rows_of(folder / "metrics.csv")
    assert list(first)[:6] == ["iteration", "global_step", "seconds", "charts/episodic_return",
                               "charts/episodic_length", "charts/SPS"]
    assert (first["charts/episodic_return"], first["charts/episodic_length"]) == ("15", "15.5")
    assert (second["charts/episodic_return"], second["global_step"]) == ("", "1024")
    assert np.float32(second["losses/value_loss"]) == np.float32(1 / 3)
    assert [tuple(row.values())[:4] for row in rows_of(folder / "episodes.csv")] == [
        ("100", "0", "10", "10"), ("300", "3", "20", "21")]
    assert scalars_of(folder, "charts/episodic_return") == [(512, 15.0)]
    assert scalars_of(folder, "losses/value_loss") == [(512, pytest.approx(0.1)), (1024, pytest.approx(1 / 3))]
    assert list(summary) == ["variant", "env_id", "seed", "framework", "steps", "episodes", "episodic_return_mean",
                             "episodic_return_std", "episodic_length_mean", "episodic_length_std", "sps",
                             "compile_seconds", "wall_seconds"]
    assert summary["variant"] == "ppo" and summary["seed"] == 7 and summary["episodes"] == 2
    assert (summary["episodic_return_mean"], summary["episodic_return_std"]) == (15.0, 5.0)
    assert first["charts/SPS"] == "" and second["charts/SPS"] == str(int(summary["sps"]))


def test_summary_counts_the_last_hundred_and_says_none_without_episodes(tmp_path):
    """Against the definition in the issue: last 100 training episodes, null where none finished."""
    log = Log(new_run(tmp_path / "run", num_iterations=2))
    log.iteration(1, 512, LOSSES, episodes())
    assert log.summary()["episodic_return_mean"] is None and log.summary()["episodic_length_std"] is None
    log.iteration(2, 1024, LOSSES, episodes(*[(i, 0, i, i) for i in range(250)]))
    assert log.summary()["episodic_return_mean"] == np.arange(150, 250).mean() and log.summary()["episodes"] == 250
    log.close()


def test_each_player_has_its_own_charts(tmp_path):
    """Against the seeds' names; rows 1 and 3 both belong to the second player of their game."""
    run = new_run(tmp_path / "run", "ppo_pettingzoo_ma_atari", num_iterations=1)
    folder = run.folder
    log = Log(run, players=("player0", "player1"))
    log.iteration(1, 64, LOSSES, episodes((5, 0, 1, 5), (5, 1, -1, 5), (9, 3, 4, 7)))
    log.close()
    (row,) = rows_of(folder / "metrics.csv")
    assert (row["charts/episodic_return-player0"], row["charts/episodic_return-player1"]) == ("1", "1.5")
    assert row["charts/episodic_length-player1"] == "6"
    assert [row["player"] for row in rows_of(folder / "episodes.csv")] == ["player0", "player1", "player1"]


def test_resume_leaves_no_doubled_and_no_missing_point(tmp_path):
    """Against a run that was never interrupted: the lines after the checkpoint were lost, and are written once."""
    def play(log: Log, first: int, last: int) -> None:
        for k in range(first, last + 1):
            log.iteration(k, 512 * k, LOSSES, episodes((512 * k - 1, 0, k, k)))

    run = new_run(tmp_path / "run", num_iterations=6)
    folder = run.folder
    log = Log(run)
    play(log, 1, 3)
    state = json.loads(json.dumps(log.state()))
    play(log, 4, 5)
    log.close()
    with open(folder / "metrics.csv", "a") as file:
        file.write("6,30")  # a line that the kill cut off
    log = Log(run, resume=state)
    play(log, 4, 6)
    assert log.summary()["episodes"] == 6 and log.summary()["wall_seconds"] > state["clock"]["seconds"]
    log.close()
    assert [row["iteration"] for row in rows_of(folder / "metrics.csv")] == list("123456")
    assert [row["return"] for row in rows_of(folder / "episodes.csv")] == list("123456")
    assert [step for step, _ in scalars_of(folder, "charts/episodic_return")] == [512 * k for k in range(1, 7)]


def test_a_metric_that_a_resume_adds_is_told_to_be_missing_in_the_table(tmp_path, capsys):
    """Once. The columns of metrics.csv are those of the first iteration; TensorBoard has it."""
    run = new_run(tmp_path / "run")
    log = Log(run)
    log.iteration(1, 512, LOSSES, episodes())
    kept = log.state()
    log.close()
    log = Log(run._replace(cfg=replace(run.cfg, info_metrics=("is_success",))), resume=kept)
    for k in (2, 3):
        log.iteration(k, 512 * k, LOSSES | {"charts/is_success": 0.5}, episodes())
    log.close()
    assert capsys.readouterr().err.count("no column for charts/is_success, because the run began without it in --info-m") == 1
    assert [step for step, _ in scalars_of(run.folder, "charts/is_success")] == [1024, 1536]


def test_a_run_that_begins_again_leaves_nothing_of_the_first_attempt(tmp_path):
    """Killed before its first checkpoint, a run is resumed from nothing, in the same folder."""
    run = new_run(tmp_path / "run", num_iterations=3)
    folder = run.folder
    for steps in ((512, 1024, 1536), (512, 1024)):
        log = Log(run)
        for k, step in enumerate(steps, start=1):
            log.iteration(k, step, LOSSES, episodes((step, 0, len(steps), 1)))
        log.close()
    assert [row["global_step"] for row in rows_of(folder / "metrics.csv")] == ["512", "1024"]
    assert len(rows_of(folder / "episodes.csv")) == 2
    assert scalars_of(folder, "charts/episodic_return") == [(512, 2.0), (1024, 2.0)]


def test_speed_and_set_up_are_told_apart(tmp_path):
    """A set-up of 100 seconds is in the wall time, and not in the speed."""
    log = Log(new_run(tmp_path / "run", num_iterations=2), started=time.perf_counter() - 100)
    for k in (1, 2):
        time.sleep(0.05)
        log.iteration(k, 512 * k, LOSSES, episodes())
    summary = log.summary()
    assert summary["wall_seconds"] > 100 and summary["compile_seconds"] == pytest.approx(100, abs=1)
    assert 512 / 1 < summary["sps"] <= 512 / 0.05
    log.close()


def test_resume_with_a_shortened_file_goes_on_and_says_so(tmp_path, capsys):
    """A power cut may lose what the system had not written; the run is worth more than its log."""
    run = new_run(tmp_path / "run", num_iterations=3)
    folder = run.folder
    log = Log(run)
    for k in (1, 2):
        log.iteration(k, 512 * k, LOSSES, episodes())
    state = log.state()
    log.close()
    whole = (folder / "metrics.csv").read_bytes()
    (folder / "metrics.csv").write_bytes(whole[:-5])
    log = Log(run, resume=state)
    log.iteration(3, 1536, LOSSES, episodes())
    log.close()
    assert [row["iteration"] for row in rows_of(folder / "metrics.csv")] == ["1", "3"]
    assert "metrics.csv is shorter" in capsys.readouterr().err


def test_full_disk_is_a_files_error(tmp_path):
    """/dev/full answers every write as a full disk does."""
    run = new_run(tmp_path / "run", num_iterations=1)
    folder = run.folder
    (folder / "metrics.csv").symlink_to("/dev/full")
    log = Log(run)
    log.iteration(1, 512, LOSSES, episodes())
    with pytest.raises(FilesError, match="No space left"):
        log.state()
    with pytest.raises(FilesError, match="No space left"):
        log.close()


def test_vanished_folder_is_a_files_error(tmp_path):
    """Writing to a deleted file succeeds on Linux, so nothing but a look finds it."""
    run = new_run(tmp_path / "run", num_iterations=1)
    folder = run.folder
    log = Log(run)
    log.iteration(1, 512, LOSSES, episodes())
    folder.rename(tmp_path / "elsewhere")
    with pytest.raises(FilesError, match="has been removed or moved while the run was writing to it"):
        log.state()
    log.close()


def test_compact_writes_histograms_and_hyperparameters(tmp_path):
    """Against TensorBoard's reader: histograms of an iteration's episodes, and the table of fields."""
    run = new_run(tmp_path / "run", "compact", num_iterations=1)
    run = run._replace(cfg=Compact(**vars(run.cfg)))
    folder = run.folder
    log = Log(run)
    log.iteration(1, 512, LOSSES, episodes((1, 0, 10, 4), (2, 1, 30, 6)))
    log.close()
    reader = EventAccumulator(str(folder / "tensorboard"), {"tensors": 0, "histograms": 0})
    reader.Reload()
    (event,) = reader.Histograms("charts/episodic_returns")
    spread = event.histogram_value
    assert (event.step, spread.min, spread.max) == (512, 10, 30)
    assert (spread.num, spread.sum, spread.sum_squares) == (2, 40, 1000)
    assert sum(spread.bucket) == 2 and len(spread.bucket) == len(spread.bucket_limit)
    text = reader.Tensors("hyperparameters/text_summary")[0].tensor_proto.string_val[0].decode()
    assert "|seed|7|" in text and "|gae_lambda|0.95|" in text


def test_checksums_are_crc32c():
    """Against the known answer of RFC 3720 and TensorBoard's own function, for lengths around the chunk's."""
    table = crc32c_table(64)
    assert crc32c(bytes(32), table) == 0x8A9136AA
    data = np.random.default_rng(0).bytes(200)
    for length in (1, 3, 4, 63, 64, 65, 67, 128, 130, 200):
        assert crc32c(data[:length], table) == reference_crc32c(data[:length])


def test_values_beyond_float32_and_nan(tmp_path):
    """TensorBoard keeps float32: what is larger becomes infinite, what is no number leaves no point."""
    events = EventFile(tmp_path / "tensorboard")
    events.scalars(1, {"big": -1e300, "none": math.nan, "inf": math.inf})
    events.close()
    assert scalars_of(tmp_path, "big") == [(1, -math.inf)] and scalars_of(tmp_path, "inf") == [(1, math.inf)]
    with pytest.raises(KeyError):
        scalars_of(tmp_path, "none")


def test_a_record_cut_off_by_a_kill_hides_nothing_before_it(tmp_path):
    """SIGKILL may end the file anywhere."""
    events = EventFile(tmp_path / "tensorboard")
    events.scalars(1, {"a": 1.0})
    events.scalars(2, {"a": 2.0})
    events.close()
    events.path.write_bytes(events.path.read_bytes()[:-3])
    assert scalars_of(tmp_path, "a") == [(1, 1.0)]


def test_an_iteration_costs_far_less_than_a_millisecond(tmp_path):
    """Half a millisecond is the promise (0.1 ms measured); the best round, in processor time, bears a busy machine."""
    log = Log(new_run(tmp_path / "run", num_iterations=10**6, logger="console"))
    metrics = LOSSES | {f"losses/{i}": 0.1 for i in range(6)}
    finished, best = episodes(*[(k, 0, k, k) for k in range(4)]), math.inf
    for round_ in range(10):
        start = time.process_time()
        for k in range(50 * round_, 50 * round_ + 50):
            log.iteration(k + 1, 512 * (k + 1), metrics, finished)
        best = min(best, (time.process_time() - start) / 50)
    log.close()
    assert best < 0.5e-3


def test_plain_lines_where_the_output_is_no_terminal(tmp_path, capsys):
    """Hundreds of iterations in less than ten seconds are one line at the end, and none per episode."""
    log = Log(new_run(tmp_path / "run", num_iterations=300, logger="console"))
    for k in range(1, 301):
        log.iteration(k, 512 * k, LOSSES, episodes((k, 0, 9, 9)))
    log.close()
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("CartPole-v1  100 %  step 153,600  return 9.00  SPS ") and line.endswith("done")


def test_the_time_left_is_that_of_the_iterations_that_follow(tmp_path, capsys, monkeypatch):
    """Against a clock that stands still after 100 seconds: one of four iterations, and three that are as long."""
    monkeypatch.setattr("proximo.runs.clock.time.perf_counter", lambda: 100.0)
    log = Log(new_run(tmp_path / "run", num_iterations=4, logger="console"), started=0.0)
    log.iteration(1, 512, LOSSES, episodes())
    log.close()
    assert "25 %  step 512" in (said := capsys.readouterr().out) and said.endswith("  5 min 00 s left\n")


def far(iteration: int, ret: float | None = None, sps: float | None = 20000.0) -> Progress:
    return Progress(iteration=iteration, step=512 * iteration, ret=ret, evaluated=None, sps=sps, compile_seconds=21.0,
                    left=83.0)


def test_the_last_evaluation_stays_in_the_line():
    out = io.StringIO()
    meter = Meter("CartPole-v1", 2, Console(file=out))
    meter.update(far(2)._replace(evaluated=195.25))
    meter.close()
    assert "return none yet  eval 195.25  SPS" in out.getvalue()


def test_a_bar_on_a_terminal():
    """Against what a terminal was sent: step, return, speed and time left; refreshed rarely."""
    sent = io.StringIO()
    meter = Meter("CartPole-v1", 1000, Console(file=sent, force_terminal=True, width=120))
    for k in range(1, 1000):
        meter.update(far(k, 12.5 if k > 3 else None))
    meter.close()
    assert "step 511,488  return 12.50  SPS 20,000  1 min 23 s left" in sent.getvalue()
    assert sent.getvalue().count("SPS") < 10


def test_the_last_line_tells_the_set_up_and_a_speed_that_is_not_known_is_left_out():
    sent = io.StringIO()
    for iteration, sps in ((1, None), (2, 100.0)):
        meter = Meter("CartPole-v1", 2, Console(file=sent))
        meter.update(far(iteration, sps=sps))
        meter.close()
    assert sent.getvalue().splitlines() == [
        "CartPole-v1  50 %  step 512  return none yet  1 min 23 s left",
        "CartPole-v1  100 %  step 1,024  return none yet  SPS 100  set-up 21 s  done"]


def test_the_last_line_of_a_run_that_ends_early_says_why():
    sent = io.StringIO()
    meter = Meter("CartPole-v1", 4, Console(file=sent))
    meter.end_early("five are\nenough")
    meter.update(far(2))
    meter.close()
    assert sent.getvalue() == "CartPole-v1  50 %  step 1,024  return none yet  SPS 20,000  ended: five are enough\n"


def test_a_reader_that_left_does_not_end_the_run():
    """`proximo train ... | head` closes the pipe; training continues without output."""
    class Gone(io.StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError

    meter = Meter("CartPole-v1", 2, Console(file=Gone()))
    meter.update(far(1))
    meter.close()


def test_durations_read_well():
    """Against examples."""
    assert [duration(s) for s in (0.2, 59.6, 200, 7500)] == ["0 s", "1 min 00 s", "3 min 20 s", "2 h 05 min"]


def test_wandb_offline_and_missing(tmp_path, monkeypatch):
    """Offline, W&B writes its own file without network; absent, the sentence names the pip command."""
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    run = new_run(tmp_path / "run", num_iterations=1, track=True)
    folder = run.folder
    log = Log(run)
    log.iteration(1, 512, LOSSES, episodes((5, 0, 1, 5)))
    assert isinstance(log.state()["tracker_ids"]["wandb"], str)
    log.close()
    (record,) = folder.glob("wandb/offline-run-*/run-*.wandb")
    deadline = time.monotonic() + 10  # another process writes it
    while b"losses/value_loss" not in record.read_bytes() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert b"losses/value_loss" in record.read_bytes()
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(UsageError, match=r'pip install "proximo\[wandb\]"'):
        Log(new_run(tmp_path / "other", num_iterations=1, logger="wandb"))


@pytest.mark.parametrize("fault", [RuntimeError("Could not determine home directory."), PermissionError(13, "Permission denied")])
def test_wandb_that_does_not_start_is_one_sentence(fault, tmp_path, monkeypatch):
    """As for a user without a home folder, or with one that cannot be written."""
    def init(**_):
        raise fault

    monkeypatch.setattr(pytest.importorskip("wandb"), "init", init)
    with pytest.raises(UsageError, match=r"Weights & Biases did not start .*(home directory|Permission denied)"):
        Log(new_run(tmp_path / "run", num_iterations=1, track=True))


def test_a_histogram_has_the_finite_values(tmp_path):
    """An environment may give an infinite reward."""
    events = EventFile(tmp_path / "tensorboard")
    events.histogram(1, "returns", np.array([1.0, math.inf, 3.0]))
    events.histogram(2, "returns", np.array([math.nan, -math.inf]))
    events.close()
    reader = EventAccumulator(str(tmp_path / "tensorboard"), {"histograms": 0})
    reader.Reload()
    (event,) = reader.Histograms("returns")
    assert (event.step, event.histogram_value.num, event.histogram_value.sum) == (1, 2, 4)


def test_a_clock_that_goes_back_does_not_change_the_order_of_the_files(tmp_path, monkeypatch):
    """TensorBoard reads them in the order of their names, in which is the time; another program's file is there too."""
    for step, seconds in ((1, 1_700_000_000), (2, 1_600_000_000), (3, 1_500_000_000)):
        monkeypatch.setattr(time, "time", lambda seconds=seconds: float(seconds))
        events = EventFile(tmp_path, step)
        events.scalars(step, {"loss": float(step)})
        events.close()
        (tmp_path / "events.out.tfevents.of-another-program").touch()
    reader = EventAccumulator(str(tmp_path))
    reader.Reload()
    assert [event.step for event in reader.Scalars("loss")] == [1, 2, 3]


def test_wandb_has_a_run_for_each_of_several_that_train_together(tmp_path, monkeypatch):
    """Its default gives the run that the process has begun before."""
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    logs = [Log(new_run(tmp_path / name, num_iterations=1, logger="wandb")) for name in ("one", "other")]
    assert len({log.state()["tracker_ids"]["wandb"] for log in logs}) == 2
    for log in logs:
        log.close()


def test_columns_with_other_letters_are_read_in_any_locale(tmp_path):
    """A C locale, whose encoding is ASCII."""
    (tmp_path / "metrics.csv").write_text("iteration,user/größe\n1,2\n", encoding="utf-8")
    program = ("import sys, pathlib; from proximo.runs.folder.csv_file import CsvFile; path = pathlib.Path(sys.argv[1]); "
               "print(ascii(CsvFile(path, path.stat().st_size).header()))")
    done = subprocess.run([sys.executable, "-X", "utf8=0", "-c", program, str(tmp_path / "metrics.csv")], text=True, check=True,
                          capture_output=True, env=os.environ | {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0"})
    assert done.stdout == "['iteration', 'user/gr\\xf6\\xdfe']\n"


@pytest.mark.parametrize(("module", "make"), [
    ("folder.csv_file", lambda folder: CsvFile(folder / "metrics.csv", 5)), ("logs.events", EventFile)])
def test_a_file_that_cannot_be_begun_is_closed(module, make, tmp_path, monkeypatch):
    """It was open until the error was forgotten."""
    class Full(io.FileIO):
        def write(self, data):
            raise OSError(errno.ENOSPC, "full")

        def truncate(self, size=None):
            raise OSError(errno.ENOSPC, "full")

    files = []

    def open_full(path, mode, buffering):
        files.append(io.BufferedWriter(Full(path, mode.replace("b", "")), buffering))
        return files[0]

    monkeypatch.setattr(f"proximo.runs.{module}.open", open_full, raising=False)
    with pytest.raises(OSError, match="full"):
        make(tmp_path)
    assert files[0].closed and files[0].raw.closed


def test_a_resumed_log_knows_the_last_evaluation(tmp_path):
    """The next line on the terminal shows it."""
    log = Log(new_run(tmp_path / "run", num_iterations=3), resume={"evaluated": 7.5})
    assert log.state()["evaluated"] == 7.5
    log.close()


def test_event_records_are_framed_as_tensorflow_does(tmp_path):
    """The first record says the version; lengths and masked checksums as record_writer.h defines them."""
    events = EventFile(tmp_path / "tensorboard")
    events.close()
    data = events.path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    crc = reference_crc32c(data[:8])
    assert struct.unpack("<I", data[8:12])[0] == ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
    assert b"brain.Event:2" in data[12 : 12 + length] and len(data) == 16 + length
