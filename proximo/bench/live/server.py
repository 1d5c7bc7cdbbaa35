"""The page of `proximo live`: a web server that reads run folders and serves four texts, JSON and videos."""

import json
import os
import re
import socket
import sys
import time
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import parse_qs, unquote, urlsplit

from proximo.bench.live.page import live_files
from proximo.bench.live.runs import LiveRuns, page_record
from proximo.errors import FilesError, UsageError, warn
from proximo.runs.folder.files import open_regular
from proximo.runs.folder.videos import TYPES, videos_of

PORT = 8765
HERE = "127.0.0.1"
PIECE = 1 << 20  # bytes of a video that are in memory at once
NAMES_OF_HERE = ("127.0.0.1", "localhost", "::1")
HEADERS = {  # the page may load its own files only, and no other site may show or read it
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
                               "media-src 'self'; connect-src 'self'; base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin", "Cache-Control": "no-store"}


class LiveServer(ThreadingHTTPServer):
    """Serves the page of some runs until it is shut down.

    Args:
        live: The runs.
        host: The address to listen on; only 127.0.0.1 is invisible to other machines.
        port: 0: any free one.

    Raises:
        UsageError: The port is in use, or the address is not one of this machine.
    """

    daemon_threads = True

    def __init__(self, live: LiveRuns, host: str = HERE, port: int = PORT) -> None:
        self.live, self.local = live, host in NAMES_OF_HERE
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self.token = str(time.time_ns())  # a page that was loaded from an earlier server has none of our points
        self.files = live_files(self.token, "Runs in " + ", ".join(path.name for path in live.paths[:3]))
        try:
            super().__init__((host, port), LiveHandler)
        except (OSError, OverflowError) as error:
            reason = getattr(error, "strerror", None) or error
            raise UsageError(f"The page cannot be served at {host}:{port} ({reason}). Choose another port with --port "
                             "N; --port 0 takes any free one. --host must be an address of this machine.") from error

    @property
    def address(self) -> str:
        """Return the address to open in a browser."""
        host = str(self.server_address[0])
        return f"http://{f'[{host}]' if ':' in host else host}:{self.server_address[1]}/"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print an error in one line. A browser that has disconnected is not an error."""
        error = sys.exc_info()[1]
        if not isinstance(error, (ConnectionError, TimeoutError)):
            warn(f"A request of the page failed ({type(error).__name__}: {error}).")


class LiveHandler(BaseHTTPRequestHandler):
    """Answers GET and HEAD."""

    server: LiveServer
    protocol_version = "HTTP/1.1"
    timeout = 60

    def do_GET(self) -> None:
        """Send a text, the data, or a video."""
        try:
            url = urlsplit(self.path)
        except ValueError:  # such as http://x[/
            self._send(b"wrong address", "text/plain", HTTPStatus.BAD_REQUEST)
            return
        if self.server.local and not self._asked_for_this_machine():
            self._send(b"wrong host", "text/plain", HTTPStatus.FORBIDDEN)
        elif url.path in self.server.files:
            kind, text = self.server.files[url.path]
            self._send(text.encode(errors="backslashreplace"), kind)  # names of folders may be no text
        elif url.path == "/data":
            found = page_record(self.server.live, self._have(parse_qs(url.query)))
            self._send(json.dumps(found, allow_nan=False, separators=(",", ":")).encode(), "application/json")
        elif asked := re.fullmatch(r"/video/([0-9]{1,6})/([^/]+)", url.path):
            self._send_video(asked[1], unquote(asked[2]))
        else:
            self._send(b"not found", "text/plain", HTTPStatus.NOT_FOUND)

    do_HEAD = do_GET

    def log_message(self, format: str, *args: Any) -> None:
        """Print nothing: the terminal belongs to the user."""

    def _asked_for_this_machine(self) -> bool:
        """Return whether the address is ours; another site could give its own name to 127.0.0.1 to read the page."""
        return re.sub(r":\d+$", "", self.headers.get("Host", "")).strip("[]") in NAMES_OF_HERE

    def _have(self, query: dict[str, list[str]]) -> dict[str, tuple[int, int, int, int]]:
        """Read what the page has: RUN.STAMP.POINTS.STAMP.POINTS, separated by commas."""
        if query.get("token") != [self.server.token]:
            return {}
        found = re.findall(r"(\d{1,6})\.(\d{1,9})\.(\d{1,9})\.(\d{1,9})\.(\d{1,9})", query.get("have", [""])[0])
        return {run: (int(a), int(b), int(c), int(d)) for run, a, b, c, d in found}

    def _send(self, content: bytes, kind: str, status: HTTPStatus = HTTPStatus.OK) -> None:
        self._send_head(status, kind, len(content), {})
        if self.command != "HEAD":
            self.wfile.write(content)

    def _send_head(self, status: HTTPStatus, kind: str, length: int, more: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in ({"Content-Type": kind, "Content-Length": str(length)} | HEADERS | more).items():
            self.send_header(name, value)
        self.end_headers()

    def _send_video(self, number: str, name: str) -> None:
        """Send a video, or the part of it that a player asks for. Only names that are in the folder count."""
        folder = self.server.live.folder(number)
        if folder is None or name not in videos_of(folder):
            self._send(b"not found", "text/plain", HTTPStatus.NOT_FOUND)
            return
        try:
            file = open_regular(folder / "videos" / name, most=None)
        except (OSError, FilesError):
            self._send(b"not found", "text/plain", HTTPStatus.NOT_FOUND)
            return
        with file:
            size, kind = os.fstat(file.fileno()).st_size, TYPES[Path(name).suffix]
            part = asked_bytes(self.headers.get("Range", ""), size)
            if part is None:
                self._send_head(HTTPStatus.OK, kind, size, {"Accept-Ranges": "bytes"})
                self._send_bytes(file, range(size))
            elif not part:
                self._send_head(HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE, kind, 0,
                                {"Content-Range": f"bytes */{size}"})
            else:
                self._send_head(HTTPStatus.PARTIAL_CONTENT, kind, len(part),
                                {"Content-Range": f"bytes {part.start}-{part.stop - 1}/{size}"})
                self._send_bytes(file, part)

    def _send_bytes(self, file: BinaryIO, part: range) -> None:
        """Send a part of a file in pieces. If the file has become shorter, the connection ends before the part does."""
        left = len(part) if self.command != "HEAD" else 0
        file.seek(part.start)
        while left:
            piece = file.read(min(left, PIECE))
            if not piece:
                self.close_connection = True
                return
            self.wfile.write(piece)
            left -= len(piece)


def asked_bytes(header: str, size: int) -> range | None:
    """Return which bytes of a file a Range header asks for (RFC 9110, 14.1.2).

    Args:
        header: Its text.
        size: The size of the file.

    Returns:
        An empty range if the file does not have them; None if the header asks for no range, or for several.
    """
    found = re.fullmatch(r"bytes=(\d{0,12})-(\d{0,12})", header)
    if found is None or not (found[1] or found[2]):
        return None
    if not found[1]:
        return range(max(0, size - int(found[2])), size)  # the last bytes
    begin = int(found[1])
    return range(begin, max(begin, min(int(found[2]) + 1, size) if found[2] else size))
