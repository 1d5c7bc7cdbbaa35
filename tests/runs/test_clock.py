"""The speed of a run against times that the test makes up."""

import pytest

from proximo.runs.clock import Clock


@pytest.fixture
def at(monkeypatch):
    """Sets the time that clocks see."""
    def set_time(seconds):
        monkeypatch.setattr("proximo.runs.clock.time.perf_counter", lambda: seconds)

    set_time(0.0)
    return set_time


def play(clock, at, *ends):
    """Iterations of 100 steps that end at these seconds."""
    for i, seconds in enumerate(ends, start=1):
        at(seconds)
        clock.count_iteration(100 * i)


def test_the_first_iteration_does_not_count(at):
    """20 seconds of compilation, then 100 steps in 2 seconds each."""
    clock = Clock()
    play(clock, at, 22.0)
    assert clock.sps is None and clock.compile_seconds is None and clock.seconds == 22.0
    assert clock.seconds_left(100) == pytest.approx(22.0)
    play(clock, at, 22.0, 24.0, 26.0)
    assert clock.sps == 50.0 and clock.compile_seconds == 20.0 and clock.seconds == 26.0
    assert clock.seconds_left(300) == 6.0


def test_the_first_iteration_of_every_process_does_not_count(at):
    """A second process compiles for 30 seconds, and plays as fast as the first one."""
    first = Clock()
    play(first, at, 22.0, 24.0)
    state = first.state()
    at(1000.0)
    second = Clock(state)
    assert second.sps == 50.0
    at(1032.0)
    assert second.count_iteration(300) == 56.0
    assert second.sps == 50.0 and second.compile_seconds == 50.0
    at(1034.0)
    second.count_iteration(400)
    assert second.sps == 50.0 and second.compile_seconds == 50.0 and second.seconds == 58.0


def test_the_time_before_the_clock_was_made_counts(at):
    at(100.0)
    clock = Clock(started=90.0)
    play(clock, at, 112.0, 114.0)
    assert clock.seconds == 24.0 and clock.compile_seconds == 20.0


def test_an_iteration_without_steps_of_environments_counts(at):
    """All of its rows were fillers. It was a ZeroDivisionError."""
    clock = Clock()
    at(2.0)
    clock.count_iteration(0)
    assert clock.sps is None and clock.seconds_left(100) == pytest.approx(200.0)


def test_what_follows_the_last_iteration_of_a_process_counts(at):
    """Such as the evaluation and the video of a checkpoint."""
    first = Clock()
    play(first, at, 22.0, 24.0)
    at(30.0)
    state = first.state()
    at(1000.0)
    assert Clock(state).seconds == 30.0
