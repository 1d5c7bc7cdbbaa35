"""One of several processes that train as one: `python -m tests.support.ranks RANK SIZE PORT,... FILE`.

Runs every command line of FILE, each at the port of the same place, and prints `row NUMBER CODE` after each.
"""

import os
import sys
from pathlib import Path

from proximo.cli.main import main


def run_lines(rank: int, size: int, ports: list[str], lines: list[str]) -> None:
    for number, (port, line) in enumerate(zip(ports, lines, strict=True)):
        os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(size),
                       "LOCAL_WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        print("row", number, main(line.split()), flush=True)


if __name__ == "__main__":
    run_lines(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3].split(","), Path(sys.argv[4]).read_text().splitlines())
