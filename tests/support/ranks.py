"""One of several processes that train as one: `python -m tests.support.ranks RANK SIZE PORT FILE`.

Runs every command line of FILE, each on a port of its own, and prints `row NUMBER CODE` after each.
"""

import os
import sys
from pathlib import Path

from proximo.cli.main import main


def run_lines(rank: int, size: int, port: int, lines: list[str]) -> None:
    for number, line in enumerate(lines):
        os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(size),
                       "LOCAL_WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port + number)}
        print("row", number, main(line.split()), flush=True)


if __name__ == "__main__":
    run_lines(int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4]).read_text().splitlines())
