"""What the processes of a run must agree on, against settings and checkpoints that differ."""

from dataclasses import replace

import pytest

from proximo.config import Config
from proximo.errors import FilesError, UsageError
from proximo.problems import check_shares
from proximo.processes import refuse_different_settings, refuse_different_starts, settings_numbers
from proximo.variants import RPO, Continuous, SelfPlay


def test_the_workers_of_a_process_divide_its_environments():
    """Not those of all processes. Games of several players are stepped by threads, of which any number will do."""
    cfg = Config(num_envs=12, env_workers=4)
    check_shares(cfg, 3, "processes")
    with pytest.raises(UsageError, match="Each of 2 processes has 6 environments, which are not divisible by env_workers=4"):
        check_shares(cfg, 2, "processes")
    check_shares(cfg, 2, "devices")
    check_shares(SelfPlay(num_envs=12, env_workers=4), 2, "processes")


def test_processes_with_other_settings_are_refused():
    """Settings of the machine, of logging, and paths may differ; the others are named, with the process."""
    first, free = Config(), Config(threads=3, device="cuda", logger="none", env_file="/a/b.py", init_from="/c")
    others = [replace(Config(), learning_rate=0.1, num_envs=8), Continuous(), RPO()]
    named = [*map(settings_numbers, (first, free, *others))]
    names = list(named[0])
    assert all(list(one) == names for one in named)  # processes add up vectors of one length

    def check(*ranks):
        refuse_different_settings(names, [list(named[rank].values()) for rank in ranks])

    check(0, 1, 0)
    with pytest.raises(UsageError, match="Process 2 was started .* process 0: num_envs, learning_rate. Start all"):
        check(0, 0, 2)
    with pytest.raises(UsageError, match="process 0: variant, "):
        check(3, 4)


def test_processes_that_found_different_checkpoints_do_not_train():
    refuse_different_starts([8.0, 8.0])
    with pytest.raises(FilesError, match="different newest checkpoints, of the iterations 8, 4 in order of rank"):
        refuse_different_starts([8.0, 4.0])
