"""The curves that a report and the live page share, in a real browser: hovering, zooming, hiding, the mean of seeds."""

import json
import shutil
import subprocess

import pytest

from proximo.bench.live.charts import charts_script
from proximo.bench.report.page import Charts, Folded, Section, Video, markdown, page
from proximo.bench.text import Table

EVIL = "</script><b>bold"
ACT = """
<script>
const found = {}, root = document.querySelector('.charts'), canvas = root.querySelector('canvas');
const at = (kind, x, y) => { const box = canvas.getBoundingClientRect(); canvas.dispatchEvent(new PointerEvent(kind,
  {clientX: box.left + x, clientY: box.top + y, bubbles: true})); };
const ink = () => canvas.getContext('2d').getImageData(60, 10, canvas.width - 80, 150).data.filter(x => x).length;
found.panels = [...root.querySelectorAll('h3')].map(one => one.textContent);
found.ink = ink();
found.resetBefore = root.querySelector('.controls button').hidden;
at('pointermove', canvas.clientWidth / 2, 80);
found.tip = root.querySelector('.tip').textContent;
at('pointerdown', 100, 80); at('pointermove', 200, 80); at('pointerup', 200, 80);
found.resetAfter = root.querySelector('.controls button').hidden;
found.zoomed = ink();
at('dblclick', 100, 80);
found.resetAgain = root.querySelector('.controls button').hidden;
root.querySelector('input[type=checkbox]').click();
at('pointermove', canvas.clientWidth / 2, 80);
found.mean = root.querySelector('.tip').textContent;
at('pointerleave', 0, 0);
root.querySelectorAll('.chip').forEach(chip => chip.click());
found.hidden = ink();
document.title = JSON.stringify(found);
</script></body>"""


def record(seed, label="a", points=50):
    """A run of which return and metric rise by `seed` with each point."""
    rows = [[100.0 * k, float(k), seed * k, 9.0, seed * k, 9.0] for k in range(points)]
    return {"name": f"{label}/{seed}", "env_id": "E", "label": label, "seed": seed, "names": ["losses/x"],
            "measure": "return", "metrics": {"rows": [[*row[:2], row[2]] for row in rows]}, "episodes": {"rows": rows}}


def test_what_markdown_shows():
    """Neither curves nor videos, but the table of a folded one."""
    folded = Folded("all", Table(head=["field", "a"], rows=[["gamma", "0.9"]]))
    assert markdown("t", [Section("s", [Charts([record(1)]), Video(b"x", "video/mp4", "c"), folded])]) == \
        "# t\n\n## s\n\n| field | a |\n| --- | --- |\n| gamma | 0.9 |\n"


def test_a_stranger_cannot_leave_the_data():
    text = page(EVIL, [Section(EVIL, [Charts([record(1, EVIL)]), Video(b"x", "video/mp4", EVIL)])])
    assert EVIL not in text and text.count("</script>") == 2 and "data:video/mp4;base64,eA==" in text


@pytest.mark.skipif(shutil.which("node") is None, reason="no node")
def test_no_two_ticks_of_an_axis_have_the_same_text():
    """Also where the values differ in late digits, and against time, whose ticks are whole seconds, minutes, hours or days."""
    axes = [[1.0972, 1.0986, False], [999_800, 1_000_700, False], [0.6931471, 0.6931476, False], [-500, -20, False],
            [0, 1e12, False], [0, 0.8, True], [0, 400, True], [0, 5000, True], [0, 400_000, True],
            [90_000, 120_000, True], [3600, 3660, True], [86_400, 87_400, True], [4000, 4010, True]]
    script = charts_script() + f";console.log(JSON.stringify({axes}.map(one => ticks(one[0], one[1], 5, one[2]))))"
    found = subprocess.run(["node", "-e", script.replace("True", "true").replace("False", "false")], check=True, timeout=60,
                           capture_output=True, text=True).stdout
    texts = [[text for _, text in one] for one in json.loads(found)]
    assert all(len(one) >= 2 and len({*one}) == len(one) for one in texts)
    assert [one[:3] for one in texts[5:]] == [["0 s", "0.2 s", "0.4 s"], ["0 s", "2 min", "4 min"],
                                              ["0 s", "30 min", "1 h"], ["0 s", "1 d", "2 d"],
                                              ["1 d 2 h", "1 d 4 h", "1 d 6 h"], ["1 h", "1 h 0 min 15 s", "1 h 0 min 30 s"],
                                              ["1 d", "1 d 0 h 5 min", "1 d 0 h 10 min"],
                                              ["1 h 6 min 40 s", "1 h 6 min 42 s", "1 h 6 min 44 s"]]


DRAW = """
const strokes = [], node = () => ({style: {}, append() {}, replaceChildren() {}, clientWidth: 400, getContext: () => pen});
const pen = new Proxy({}, {get: (kept, name) => name === "setLineDash" ? dash => { kept.dash = dash; } : name === "stroke"
  ? () => strokes.push([kept.lineWidth, kept.strokeStyle, String(kept.dash)]) : name in kept ? kept[name] : () => {}});
globalThis.document = {createElement: node}; globalThis.devicePixelRatio = 1; globalThis.getComputedStyle = () => ({color: "ink"});
const chart = new Chart(node(), "title", "note", {range: null}, null);
chart.series = [...Array(20).keys()].map(k => ({name: k, ...lineStyle(k), points: [[0, k, k], [1, k, k]]}));
chart.draw();
console.log(JSON.stringify(strokes.filter(one => one[0] === 1.8)));
"""


@pytest.mark.skipif(shutil.which("node") is None, reason="no node")
def test_no_two_of_twenty_lines_look_the_same():
    """There are eight colours."""
    found = subprocess.run(["node", "-e", charts_script() + DRAW], check=True, timeout=60, capture_output=True, text=True).stdout
    lines = [tuple(one) for one in json.loads(found)]
    assert len(lines) == len({*lines}) == 20 and len({color for _, color, _ in lines}) == 8


@pytest.mark.skipif(shutil.which("chromium") is None, reason="no chromium")
def test_curves_in_a_browser(tmp_path):
    text = page("t", [Section("c", [Charts([record(1), record(3), record(2, "b", 30)])])])
    (tmp_path / "page.html").write_text(text.replace("</body>", ACT))
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
             "--disable-background-networking", "--disable-component-update", f"--user-data-dir={tmp_path / 'user'}"]
    dom = subprocess.run(["chromium", *flags, "--window-size=1200,900", "--dump-dom", f"file://{tmp_path}/page.html"],
                         check=True, timeout=100, capture_output=True, text=True).stdout
    title = dom.split("<title>")[1].split("</title>")[0]
    found = json.loads(title)
    assert found["panels"] == ["return", "length of episodes", "x"]
    assert found["ink"] > 1.3 * found["hidden"] > 0 and found["zoomed"] != found["ink"]
    assert (found["resetBefore"], found["resetAfter"], found["resetAgain"]) == (True, False, True)
    assert "a seed 1" in found["tip"] and "a seed 3" in found["tip"] and "step 2," in found["tip"]
    assert "a, mean of 2 seeds" in found["mean"] and "seed 3" not in found["mean"]
