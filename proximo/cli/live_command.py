"""The command `live`: follow runs while they train, on a page or on the terminal."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from proximo.bench.live.runs import LiveRuns
from proximo.bench.live.server import HERE, NAMES_OF_HERE, PORT, LiveServer
from proximo.bench.live.text import show_text
from proximo.cli.arguments import arguments, check_least
from proximo.errors import notify, warn
from proximo.runs.interrupts.sigterm import TerminatedError


@dataclass
class LiveArguments:
    """Follow runs while they train: curves, losses, videos and warnings on a page of this machine, or as text.

    Only files are read, so the runs may be on another machine that shares a folder with this one. Nothing is written.
    """

    runs: Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(
        metavar="RUN...|DIR", help_behavior_hint="(required)")] = ()
    """folders of runs, or folders that contain runs, now or later"""
    port: int = PORT
    """port of the page; 0: any free one"""
    host: str = HERE
    """address to serve the page at; with another one than 127.0.0.1, other machines can read it"""
    text: bool = False
    """show the runs on the terminal instead; without a terminal, as lines until no run is running"""


def live_command(words: list[str]) -> int:
    """Serve the page, or show the runs as text, until Ctrl-C; return 0."""
    args = arguments(LiveArguments, words, "live")
    missing = ["live needs at least one folder: proximo live runs"] * (not args.runs)
    check_least(args, *missing, port=0)
    live = LiveRuns(args.runs)
    try:
        if args.text:
            show_text(live)
        else:
            serve_page(live, args.host, args.port)
    except TerminatedError:  # exit code 143; Ctrl-C is the usual end
        raise
    except KeyboardInterrupt:
        print()
    return 0


def serve_page(live: LiveRuns, host: str, port: int) -> None:
    """Serve the page of some runs until Ctrl-C."""
    with LiveServer(live, host, port) as server:
        if host not in NAMES_OF_HERE:
            warn(f"The page is open to every machine that can reach {host}; there is no password. Without --host, only "
                 "this machine can read it.")
        notify(f"{server.address} shows {', '.join(map(str, live.paths))}. Ctrl-C ends it. From another machine: "
               f"ssh -L {server.server_address[1]}:{HERE}:{server.server_address[1]} MACHINE")
        server.serve_forever()
