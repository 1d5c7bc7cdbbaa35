"""A report as one HTML page that needs no other file, and as Markdown."""

import base64
import html
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from proximo.bench.live.charts import CHART_STYLE, charts_script
from proximo.bench.text import Table

SHORT_CELL = 36  # characters of a number with its interval or the like, which is not broken into lines
MARKS = re.compile(r"[*`~]|\\(?=\W|_)|(?<![^\W_])_+|_+(?![^\W_])")  # of Markdown; `_` inside a word is none
PAGE_STYLE = """
:root{color-scheme:light dark}
body{font:15px/1.5 system-ui,sans-serif;margin:0 auto;max-width:1360px;padding:1.5rem;background:#fff;color:#1b1b1f}
h1{font-size:1.7rem;margin:.2rem 0}h2{margin:2.2rem 0 .5rem;border-bottom:1px solid #ddd;padding-bottom:.2rem}
h1,h2,p,figcaption,summary,nav a{overflow-wrap:anywhere}
.wide{overflow-x:auto}table{border-collapse:collapse;font-size:13px;margin:.6rem 0;font-variant-numeric:tabular-nums}
th,td{padding:.3rem .6rem;border-bottom:1px solid #e4e4e8;text-align:left;vertical-align:top}
th{background:#f5f5f8;position:sticky;top:0}
td.short{white-space:nowrap}.note{color:#666;font-size:13px}
.above{color:#176b33;font-weight:600}.below{color:#a3231b;font-weight:600}.within{font-weight:600}
pre{background:#f5f5f8;padding:.7rem;overflow-x:auto;font-size:12.5px;white-space:pre-wrap}
figure{margin:1rem 0}figure img{max-width:100%;height:auto;cursor:zoom-in;border:1px solid #eee;background:#fff}
figure.zoomed{position:fixed;inset:0;margin:0;background:#fff;z-index:9;overflow:auto}
figure.zoomed img{width:auto;min-width:100%;height:96vh;max-width:none;cursor:zoom-out;border:0}
nav a{margin-right:1rem}.video video,.video img{max-height:320px;max-width:100%;background:#000}
summary{cursor:pointer}
@media(max-width:48rem){body{padding:.8rem}.wide table{width:max-content}
.wide th,.wide td{max-width:14rem;overflow-wrap:anywhere}}
@media(prefers-color-scheme:dark){body{background:#17171a;color:#e7e7ea}th,pre{background:#242429}
th,td{border-color:#333}.note{color:#aaa}.above{color:#6fd08c}.below{color:#ff8a80}}
"""
PAGE_SCRIPT = """
document.querySelectorAll('figure').forEach(f=>f.addEventListener('click',()=>f.classList.toggle('zoomed')));
addEventListener('keydown',e=>{if(e.key==='Escape')document.querySelectorAll('.zoomed')
.forEach(f=>f.classList.remove('zoomed'))});
"""
START_CHARTS = """
document.querySelectorAll('.charts').forEach(place=>new Charts(place).show(JSON.parse(place.firstChild.textContent)));
"""


class Picture(NamedTuple):
    """An SVG figure and its caption."""

    svg: str
    caption: str


class Block(NamedTuple):
    """Preformatted lines, such as a log or commands."""

    text: str


class Charts(NamedTuple):
    """Curves of single runs that a reader can zoom: what live.charts.curves_record and the points of each run give."""

    runs: Sequence[Mapping[str, Any]]


class Video(NamedTuple):
    """A video, which becomes part of the page."""

    content: bytes
    kind: str
    """MIME type"""
    caption: str


class Folded(NamedTuple):
    """A table that is shown after a click."""

    title: str
    table: Table


Part = Table | Picture | Block | Charts | Video | Folded | str


class Section(NamedTuple):
    """A heading and what is below it."""

    title: str
    parts: Sequence[Part]


def page(title: str, sections: Sequence[Section]) -> str:
    """Return the HTML page, with style, script and figures inside."""
    links = "".join(f'<a href="#s{k}">{html.escape(section.title)}</a>' for k, section in enumerate(sections))
    body = "".join(f'<h2 id="s{k}">{html.escape(section.title)}</h2>' + "".join(map(_html, section.parts))
                   for k, section in enumerate(sections))
    name = html.escape(title)
    has_charts = any(isinstance(part, Charts) for section in sections for part in section.parts)
    script = PAGE_SCRIPT + (charts_script() + START_CHARTS) * has_charts
    return (f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{name}</title>'
            f'<meta name="viewport" content="width=device-width"><link rel="icon" href="data:,">'
            f'<style>{PAGE_STYLE}{CHART_STYLE * has_charts}</style></head><body><h1>{name}</h1><nav>{links}</nav>{body}'
            f'<script>{script}</script></body></html>\n')


def markdown(title: str, sections: Sequence[Section]) -> str:
    """Return the same in Markdown, without the figures."""
    lines = [f"# {_plain(title)}", ""]
    for section in sections:
        parts = [text for part in section.parts if (text := _markdown(part))]
        if parts:
            lines += [f"## {_plain(section.title)}", "", *(f"{text}\n" for text in parts)]
    return "\n".join(lines)


def _html(part: Part) -> str:
    if isinstance(part, Picture):
        # As an image, so that ids inside one figure cannot clash with those of another.
        data = base64.b64encode(part.svg.encode()).decode()
        caption = html.escape(part.caption)
        return (f'<figure><img src="data:image/svg+xml;base64,{data}" alt="{caption}">'
                f'<figcaption class="note">{caption} Click to enlarge.</figcaption></figure>')
    if isinstance(part, Charts):
        data = json.dumps(part.runs, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")
        return f'<div class="charts"><script type="application/json">{data}</script></div>'
    if isinstance(part, Video):
        return _video(part)
    if isinstance(part, Folded):
        return f"<details><summary>{html.escape(part.title)}</summary>{_html(part.table)}</details>"
    if isinstance(part, Block):
        return f"<pre>{html.escape(part.text)}</pre>"
    if isinstance(part, str):
        return f"<p>{html.escape(part)}</p>"
    head = "".join(f"<th>{html.escape(cell)}</th>" for cell in part.head)
    rows = "".join("<tr>" + "".join(_cell(cell) for cell in row) + "</tr>" for row in part.rows)
    return (f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>'
            f'<p class="note">{html.escape(part.note)}</p>')


def _video(part: Video) -> str:
    address = f'src="data:{part.kind};base64,{base64.b64encode(part.content).decode()}"'
    caption = html.escape(part.caption)
    is_gif = part.kind == "image/gif"
    screen = f'<img {address} alt="{caption}">' if is_gif else f"<video {address} controls loop></video>"
    return f'<div class="video">{screen}<p class="note">{caption}</p></div>'


def _cell(text: str) -> str:
    is_number = text[:1] in "-0123456789" and len(text) <= SHORT_CELL
    kinds = ["short"] * is_number + [text] * (text in ("above", "within", "below"))
    return f'<td class="{" ".join(kinds)}">{html.escape(text)}</td>' if kinds else f"<td>{html.escape(text)}</td>"


def _plain(text: str) -> str:
    """Return text in which the Markdown of GitHub finds neither HTML nor a link, a formula or another style."""
    text = MARKS.sub(lambda found: "".join(f"\\{mark}" for mark in found[0]), html.escape(text, quote=False))
    return text.replace("](", "]\\(").replace("$", "<span>$</span>")


def _markdown(part: Part) -> str:
    if isinstance(part, (Picture, Charts, Video)):
        return ""
    if isinstance(part, Folded):
        return _markdown(part.table)
    if isinstance(part, Block):
        fence = "`" * max(3, *(len(run) + 1 for run in re.findall("`+", part.text)), 3)
        return f"{fence}\n{part.text}\n{fence}"
    if isinstance(part, str):
        return _plain(part)
    rows = [part.head, ["---"] * len(part.head), *part.rows]
    cells = [[_plain(cell).replace("|", "\\|").replace("\n", " ") for cell in row] for row in rows]
    lines = [f"| {' | '.join(row)} |" for row in cells]
    return "\n".join(lines) + (f"\n\n{part.note}" if part.note else "")
