"""A small server that speaks the part of the API of the Hugging Face Hub that a push and a pull need."""

import base64
import hashlib
import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

TOKEN, COMMIT = "hf_test", "0" * 40


class Handler(BaseHTTPRequestHandler):
    """Repositories are dicts from names to bytes; everything but reading needs the token."""

    def log_message(self, *args):
        pass

    def answer(self, content, status=200, **headers):
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        words = urlsplit(self.path).path.strip("/").split("/")
        if self.headers.get("Authorization") != f"Bearer {TOKEN}":
            self.answer({"error": "Invalid credentials"}, 401, X_Error_Message="Invalid credentials")
        elif words == ["api", "repos", "create"]:
            asked = json.loads(body)
            name = f"{asked['organization']}/{asked['name']}"
            self.server.repos.setdefault(name, {})
            self.server.private[name] = asked.get("private") or asked.get("visibility") == "private"
            self.answer({"url": f"{self.server.endpoint}/{name}"})
        elif words == ["api", "validate-yaml"]:
            self.server.pages.append(json.loads(body)["content"])
            self.answer({"errors": [], "warnings": []})
        elif words[:2] == ["api", "models"] and words[4:] == ["preupload", "main"]:
            self.answer({"files": [{"path": one["path"], "uploadMode": "regular", "shouldIgnore": False}
                                   for one in json.loads(body)["files"]]})
        elif words[:2] == ["api", "models"] and words[4:] == ["commit", "main"]:
            for line in map(json.loads, body.splitlines()):
                if line["key"] == "file":
                    self.server.repos["/".join(words[2:4])][line["value"]["path"]] = base64.b64decode(line["value"]["content"])
            self.answer({"success": True, "commitOid": COMMIT, "commitUrl": f"{self.server.endpoint}/{'/'.join(words[2:4])}/commit/{COMMIT}"})
        else:
            self.answer({"error": f"unknown {self.path}"}, 404)

    def do_GET(self):
        words = urlsplit(self.path).path.strip("/").split("/")
        self.server.asked.append(words)
        name = "/".join(words[2:4] if words[0] == "api" else words[:2])
        files = self.server.repos.get(name)
        if files is None:
            self.answer({"error": "Repository not found"}, 404, X_Error_Code="RepoNotFound")
        elif words[0] == "api" and len(words) == 4:
            self.answer({"id": name, "sha": COMMIT})
        elif words[:2] == ["api", "models"] and words[4] == "tree":
            self.answer([{"type": "file", "path": path, "size": self.server.sizes.get((name, path), len(content)), "oid": "0" * 40}
                         for path, content in files.items()])
        elif words[2] == "resolve" and words[4] in files:
            content = files[words[4]]
            self.answer(content, X_Repo_Commit=COMMIT, ETag=f'"{hashlib.sha1(content).hexdigest()}"')
        else:
            self.answer({"error": f"unknown {self.path}"}, 404)

    do_HEAD = do_GET


@contextmanager
def hub_server():
    """Serve on a free port of this machine; `repos`, `private`, `pages` and `sizes` are what it holds, `asked` the paths of GET."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.endpoint = f"http://127.0.0.1:{server.server_address[1]}"
    server.repos, server.private, server.pages, server.sizes, server.asked = {}, {}, [], {}, []
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
