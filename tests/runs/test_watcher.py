"""What happens around training: when videos are due, and what is written before the first iteration."""

from proximo.config import Config
from proximo.runs.run import Run
from proximo.runs.watcher import Watcher
from proximo.variants import BatchedSim


def test_videos_follow_checkpoints_or_the_variants_own_steps(tmp_path):
    """Every 40 steps of an environment at 16 an iteration: after 40, 80, 120 and 160."""
    every = Watcher(Run(tmp_path, BatchedSim(num_steps=16, record_video_step_frequency=40), "any"))
    assert [i for i in range(1, 11) if every._video_due(i, checkpoint=False)] == [3, 5, 8, 10]
    plain = Watcher(Run(tmp_path, Config(), "any"))
    assert plain._video_due(1, checkpoint=True) and not plain._video_due(1, checkpoint=False)


def test_nothing_is_written_before_the_first_iteration(tmp_path):
    began = []
    watcher = Watcher(Run(tmp_path, Config(), "ppo"), before_first=lambda: began.append(1))
    watcher.close()
    assert began == [] and list(tmp_path.iterdir()) == []
