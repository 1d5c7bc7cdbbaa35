"""One of two processes, for test_distributed.py: `RANK=0|1 ... python -m tests.support.deaf FOLDER`.

Rank 1 ends for the others, but its connections of gloo stay open, so that gloo never reports the loss. Rank 0 writes the
error of its collective operation to FOLDER/said.
"""

import sys
import time
from pathlib import Path

import torch

from proximo.config import Config
from proximo.errors import PeerError
from proximo.on_torch import distributed
from proximo.on_torch.distributed import all_reduce_sum, join, leave

if __name__ == "__main__":
    distributed.GIVE_UP_SECONDS = 1.0
    world = join(Config(num_envs=2))
    all_reduce_sum(world)(torch.ones(3))
    if world.rank == 1:
        world.presence.close()
        time.sleep(120)
    try:
        all_reduce_sum(world)(torch.ones(3))
    except PeerError as error:
        (Path(sys.argv[1]) / "said").write_text(str(error))
    finally:
        leave(world)
