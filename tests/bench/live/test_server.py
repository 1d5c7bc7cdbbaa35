"""The page over HTTP: what is new, escaping, what is served and what is not, and the page in a real browser."""

import http.client
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request

import pytest

from proximo.bench.live.runs import LiveRuns
from proximo.bench.live.server import LiveServer, asked_bytes
from proximo.errors import UsageError
from tests.support.run_folders import RunFolder

EVIL = "</script><img src=x onerror=document.title='stolen'>"


@pytest.fixture
def serve():
    """Serve folders; returns the function that asks, which returns status, headers and body."""
    started = []

    def start(*folders):
        server = LiveServer(LiveRuns(folders), port=0)
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}).start()
        started.append(server)

        def ask(path, method="GET", **headers):
            connection = http.client.HTTPConnection(*server.server_address[:2], timeout=10)
            connection.request(method, path, headers={name.replace("_", "-"): text for name, text in headers.items()})
            answer = connection.getresponse()
            content = answer.read()
            connection.close()
            return answer.status, dict(answer.getheaders()), content

        ask.server = server
        return ask

    yield start
    for server in started:
        server.shutdown()
        server.server_close()


def data(ask, have=""):
    return json.loads(ask(f"/data?token={ask.server.token}&have={have}")[2])


def have_of(run):
    return ".".join(map(str, (run["id"], run["metrics"]["stamp"], len(run["metrics"]["rows"]),
                              run["episodes"]["stamp"], len(run["episodes"]["rows"]))))


def test_a_run_is_followed_while_it_grows(serve, tmp_path):
    """The second answer has the new points only, and nothing is written to the folder."""
    run = RunFolder(tmp_path / "runs" / "a").grow(5).lock()
    ask = serve(tmp_path / "runs")
    before = sorted(path.name for path in run.folder.iterdir())
    (first,) = data(ask)["runs"]
    assert first["name"] == "a" and first["state"] == "running" and first["step"] == 500 and first["of"] == 10_000
    assert first["left"] == pytest.approx(9500 / 500) and first["age"] < 60 and len(first["metrics"]["rows"]) == 5
    assert first["newest"][0] == [500, 10, 15] and first["mean_return"] == 6 and first["warnings"] == []
    run.grow(2)
    (second,) = data(ask, have_of(first))["runs"]
    assert [row[0] for row in second["metrics"]["rows"]] == [600, 700] and second["metrics"]["from"] == 5
    assert [row[4] for row in second["episodes"]["rows"]] == [12, 14]
    assert data(ask, "9.9.9.9.9,x,0.1")["runs"][0]["metrics"]["from"] == 0
    assert len(json.loads(ask(f"/data?token=other&have={have_of(first)}")[2])["runs"][0]["metrics"]["rows"]) == 7
    assert sorted(path.name for path in run.folder.iterdir()) == before


def test_states(serve, tmp_path):
    RunFolder(tmp_path / "finished").grow(1).finish()
    RunFolder(tmp_path / "stopped").grow(1)
    RunFolder(tmp_path / "killed").grow(1).lock(f"process 99999999 on {os.uname().nodename}\n")
    silent = RunFolder(tmp_path / "silent").grow(1).lock()
    between_lines = RunFolder(tmp_path / "between lines", seed=3).grow(1).lock()  # of --log-every; episodes end
    for path in (silent.folder / "metrics.csv", silent.folder / "episodes.csv", between_lines.folder / "metrics.csv"):
        os.utime(path, (1, time.time() - 1200))
    RunFolder(tmp_path / "failed").grow(1)
    (tmp_path / "failed.job.json").write_text(json.dumps({
        "env_id": "CartPole-v1", "label": "ppo", "variant": "ppo", "seed": 1, "steps": 100, "status": "failed",
        "lines": "the loss is not finite", "ablates": ""}))
    RunFolder(tmp_path / "empty").lock()
    (RunFolder(tmp_path / "nan").grow(1).folder / "repro").mkdir()
    resumed = RunFolder(tmp_path / "resumed").grow(1, seed=2)
    (resumed.folder / "repro").mkdir()
    os.utime(resumed.folder / "repro", (1, 1))  # it has continued since
    found = {run["name"]: run for run in data(serve(tmp_path))["runs"]}
    assert {name: run["state"] for name, run in found.items()} == {
        "finished": "finished", "stopped": "stopped", "killed": "stopped", "silent": "silent", "between lines": "running",
        "failed": "failed", "empty": "running", "nan": "failed", "resumed": "stopped"}
    assert found["nan"]["why"] == f"Its numbers were not finite. This says where: proximo doctor {tmp_path / 'nan' / 'repro'}"
    assert found["resumed"]["why"] == f"Continue it with: proximo resume {resumed.folder}"
    assert found["failed"]["failure"] == "the loss is not finite" and "SIGKILL" in found["killed"]["why"]


def test_runs_that_begin_later_appear(serve, tmp_path, monkeypatch):
    monkeypatch.setattr("proximo.bench.live.runs.SEARCH_SECONDS", 0.0)
    ask = serve(tmp_path)
    assert data(ask)["runs"] == []
    RunFolder(tmp_path / "b" / "2", seed=2).grow(1)
    assert [run["name"] for run in data(ask)["runs"]] == ["b/2"]
    RunFolder(tmp_path / "b" / "1", seed=1).grow(1)
    assert [(run["name"], run["id"]) for run in data(ask)["runs"]] == [("b/1", "1"), ("b/2", "0")]  # numbers stay


def test_warnings_and_settings_that_differ(serve, tmp_path):
    RunFolder(tmp_path / "a", gamma=0.9).grow(10, approx_kl=0.2)
    RunFolder(tmp_path / "b", gamma=0.99).grow(10, approx_kl="nan")
    found = data(serve(tmp_path))
    assert [one["metric"] for one in found["runs"][1]["warnings"]] == ["approx_kl"]
    assert found["settings"] == [["field", "ppo", "ppo-gamma=0.9"], ["gamma", "0.99", "0.9"]]


def test_only_listed_videos_are_served(serve, tmp_path):
    """In whole and in part; no path leads anywhere else, and no link out of the folder."""
    videos = RunFolder(tmp_path / "runs" / "a").grow(1).folder / "videos"
    videos.mkdir()
    (videos / "a b.mp4").write_bytes(bytes(range(100)))
    (videos / ".half.tmp.mp4").write_bytes(b"x")
    (tmp_path / "secret.mp4").write_bytes(b"secret")
    (videos / "link.mp4").symlink_to(tmp_path / "secret.mp4")
    ask = serve(tmp_path / "runs")
    assert data(ask)["runs"][0]["videos"] == ["a b.mp4"]
    status, headers, content = ask("/video/0/a%20b.mp4")
    assert (status, headers["Content-Type"], content) == (200, "video/mp4", bytes(range(100)))
    status, headers, content = ask("/video/0/a%20b.mp4", Range="bytes=10-19")
    assert (status, headers["Content-Range"], content) == (206, "bytes 10-19/100", bytes(range(10, 20)))
    assert ask("/video/0/a%20b.mp4", Range="bytes=90-")[2] == bytes(range(90, 100))
    for path in ("/video/0/link.mp4", "/video/0/.half.tmp.mp4", "/video/0/..%2f..%2f..%2fsecret.mp4", "/video/7/a%20b.mp4",
                 "/video/0/%2e%2e", "/../../secret.mp4", "/runs/a/config.json", "/video/0/a%20b.mp4/..", "/etc/passwd",
                 "//etc/passwd", "/video/0/%00", "/style.css/../x"):
        assert ask(path)[0] == 404, path


@pytest.mark.parametrize(("asked", "size", "found"), [
    ("", 10, None), ("bytes=0-", 10, range(10)), ("bytes=3-5", 10, range(3, 6)), ("bytes=3-99", 10, range(3, 10)),
    ("bytes=-4", 10, range(6, 10)), ("bytes=-99", 10, range(10)), ("bytes=-0", 10, range(10, 10)),
    ("bytes=5-3", 10, range(5, 5)), ("bytes=10-", 10, range(10, 10)), ("bytes=0-", 0, range(0)), ("bytes=-", 10, None),
    ("bytes=1-2,4-5", 10, None), ("lines=1-2", 10, None)])
def test_the_bytes_that_a_player_asks_for(asked, size, found):
    assert asked_bytes(asked, size) == found


def test_a_video_of_any_size_is_sent_in_pieces(serve, tmp_path, monkeypatch):
    """A part that the file does not have is 416, as RFC 9110 says."""
    monkeypatch.setattr("proximo.bench.live.server.PIECE", 7)
    monkeypatch.setattr("proximo.runs.folder.files.MOST_BYTES", 50)  # of files of text
    videos = RunFolder(tmp_path / "a").grow(1).folder / "videos"
    videos.mkdir()
    (videos / "a.gif").write_bytes(bytes(range(100)))
    ask = serve(tmp_path)
    assert data(ask)["runs"][0]["videos"] == ["a.gif"]
    assert ask("/video/0/a.gif")[2] == bytes(range(100)) and ask("/video/0/a.gif", method="HEAD")[2] == b""
    assert ask("/video/0/a.gif", Range="bytes=13-40")[2] == bytes(range(13, 41))
    status, headers, content = ask("/video/0/a.gif", Range="bytes=5-3")
    assert (status, headers["Content-Range"], headers["Content-Length"], content) == (416, "bytes */100", "0", b"")


@pytest.mark.parametrize(("sps", "left"), [("500", 19.4), ("nan", None), ("inf", None), ("-5", None), ("0", None)])
def test_a_damaged_speed_leaves_the_time_open(serve, tmp_path, sps, left):
    """300 of 10,000 steps are done."""
    path = RunFolder(tmp_path / "a").grow(3).lock().folder / "metrics.csv"
    path.write_text(path.read_text().replace(",500,", f",{sps},"))
    (found,) = data(serve(tmp_path))["runs"]
    assert found["state"] == "running" and found["left"] == left


def test_other_sites_cannot_read_the_page(serve, tmp_path):
    """A foreign name for 127.0.0.1 is refused; scripts other than ours do not run; only GET and HEAD are answered."""
    ask = serve(tmp_path)
    assert ask("/data", Host="evil.example:8765")[0] == 403 and ask("/", Host="localhost:1")[0] == 200
    headers = ask("/")[1]
    assert "default-src 'none'; script-src 'self'" in headers["Content-Security-Policy"]
    assert "unsafe" not in headers["Content-Security-Policy"]
    assert ask("/", method="POST")[0] == 501
    status, headers, content = ask("/charts.js", method="HEAD")
    assert status == 200 and content == b"" and int(headers["Content-Length"]) > 5000
    assert ask("/data", Host="localhost.evil.example")[0] == 403


@pytest.mark.parametrize("address", ["http://x[/data", "http://[::1/data"])
def test_an_address_that_cannot_be_read_is_a_bad_request(serve, tmp_path, address, caplog):
    """As in RFC 9112, 3.2. It is no fault of the page, so nothing is printed."""
    assert serve(tmp_path)(address, Host="localhost")[0] == 400
    assert not caplog.text


def test_the_page_fetches_from_its_own_server_only(serve, tmp_path):
    """No address of a network in any text that it consists of."""
    ask = serve(tmp_path)
    for path in ask.server.files:
        assert not re.search(rb"https?://|//cdn|@import|url\(", ask(path)[2]), path


def test_a_folder_whose_name_is_no_text(serve, tmp_path):
    """Such as one in Latin-1, which another system has written."""
    folder = tmp_path / os.fsdecode(b"caf\xe9")
    RunFolder(folder / os.fsdecode(b"\xe9")).grow(1)
    ask = serve(folder)
    assert b"Runs in caf\\udce9" in ask("/")[2] and data(ask)["runs"][0]["name"] == "\udce9"


def test_a_port_in_use_and_a_missing_folder(serve, tmp_path):
    port = serve(tmp_path).server.server_address[1]
    with pytest.raises(UsageError, match=rf"127.0.0.1:{port} \(.*\). Choose another port with --port N"):
        LiveServer(LiveRuns([tmp_path]), port=port)
    with pytest.raises(UsageError, match="nowhere is not a folder"):
        LiveRuns([tmp_path, tmp_path / "nowhere"])


def test_an_address_of_ip_version_6(tmp_path):
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("this machine has no IPv6")
    with LiveServer(LiveRuns([tmp_path]), "::1", 0) as server:
        assert server.local and server.address == f"http://[::1]:{server.server_address[1]}/"
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}).start()
        for host, status in ((f"[::1]:{server.server_address[1]}", 200), ("elsewhere", 403)):
            connection = http.client.HTTPConnection("::1", server.server_address[1], timeout=10)
            connection.request("GET", "/", headers={"Host": host})
            assert connection.getresponse().status == status
            connection.close()
        server.shutdown()


def test_long_runs_have_few_points(serve, tmp_path):
    RunFolder(tmp_path, total=10**6).grow(3000)
    (run,) = data(serve(tmp_path))["runs"]
    assert 500 <= len(run["metrics"]["rows"]) <= 1000 and 500 <= len(run["episodes"]["rows"]) <= 1000
    assert run["step"] == 300_000


@pytest.mark.skipif(shutil.which("chromium") is None, reason="no chromium")
def test_the_page_in_a_browser(serve, tmp_path):
    """Headless Chromium draws the curves of a stranger's runs, and what they are called stays text."""
    for seed in (1, 2):
        RunFolder(tmp_path / "runs" / f"seed{seed}", env_id=EVIL, variant=EVIL, seed=seed).grow(60, clipfrac=0.9).lock(EVIL)
    ask = serve(tmp_path / "runs")
    address = ask.server.address
    assert EVIL.encode() not in urllib.request.urlopen(address).read()
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
             "--disable-background-networking", "--disable-component-update", f"--user-data-dir={tmp_path / 'user'}",
             "--window-size=1200,1800", "--virtual-time-budget=3000"]
    dom = subprocess.run(["chromium", *flags, "--dump-dom", address], check=True, timeout=60, capture_output=True,
                         text=True).stdout
    assert "<title>Runs in runs</title>" in dom and "<img src=\"x\"" not in dom and "&lt;img src=x" in dom
    assert dom.count("<canvas") == 7 and "clipfrac is above its usual range" in dom and "2 running" in dom


def test_ctrl_c_ends_the_command_without_a_traceback(tmp_path):
    RunFolder(tmp_path).grow(3)
    process = subprocess.Popen([sys.executable, "-m", "proximo", "live", str(tmp_path), "--port", "0"], text=True,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    line = process.stderr.readline()
    assert re.search(r"http://127\.0\.0\.1:\d+/ shows ", line), line
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=20)
    assert process.returncode == 0 and "Traceback" not in err + out


def test_settings_that_differ_in_length_or_case_are_not_one(serve, tmp_path):
    """A page averages the runs of one label: those of another length, or of arguments in another case, have others."""
    RunFolder(tmp_path / "a", env_kwargs=["level=A"]).grow(1)
    RunFolder(tmp_path / "b", env_kwargs=["level=a"]).grow(1)
    RunFolder(tmp_path / "c", total=500, env_kwargs=["level=a"]).grow(1)
    assert len({run["label"] for run in data(serve(tmp_path))["runs"]}) == 3
