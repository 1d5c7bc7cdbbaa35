"""The HTML, the style and the scripts of the live page. Of a run, the HTML has escaped names only."""

import html
from importlib.resources import files

from proximo.bench.live.charts import CHART_STYLE, charts_script
from proximo.bench.report.page import PAGE_STYLE

LIVE_STYLE = """
header{display:flex;flex-wrap:wrap;gap:.2rem 1.5rem;align-items:baseline}
#status{margin-left:auto}.lost #status{color:#a3231b;font-weight:600}
.state{border-radius:1rem;padding:.05rem .6rem;font-size:12px;font-weight:600;background:#e4e4e8;color:#333}
.state.running{background:#d8efdf;color:#176b33}.state.failed{background:#f8d9d6;color:#8f1d16}
.state.silent{background:#fdebc8;color:#7a4b00}#runs,#episodes,#settings{max-height:26rem;overflow:auto}
td.name{max-width:17rem;overflow:hidden;text-overflow:ellipsis;white-space:nowrap;direction:rtl;text-align:left}
td.setting{max-width:18rem;overflow:hidden;text-overflow:ellipsis;white-space:nowrap}progress{width:5rem;height:.55rem;accent-color:#0072B2}
#warnings ul{padding:.6rem 1rem .6rem 2rem;background:#fff6e0;border-left:4px solid #e0a100;margin:.5rem 0}
#warnings li{margin:.3rem 0;overflow-wrap:anywhere}
#videos{display:flex;flex-wrap:wrap;gap:1rem}figure.video{margin:0;max-width:100%}
figure.video video,figure.video img{display:block;height:240px;max-width:100%;background:#000;cursor:auto}
@media(prefers-color-scheme:dark){#warnings ul{background:#33290f}.state{background:#3a3a40;color:#ddd}
.state.running{background:#143d22;color:#8fe0aa}.state.failed{background:#4a1a17;color:#ffb4ad}
.state.silent{background:#453208;color:#ffd98a}}
"""
PARTS = (("warnings", "Look at these"), ("charts", "Curves"), ("videos", "Videos"), ("episodes", "Newest episodes"),
         ("settings", "Hyper-parameters that differ"))


def live_files(token: str, title: str) -> dict[str, tuple[str, str]]:
    """Return the type and the text of each address that the server has.

    Args:
        token: What the page names when it asks for data.
        title: Its heading.
    """
    name = html.escape(title)
    parts = "".join(f'<section{" hidden" * (key != "charts")}><h2>{heading}</h2><div id="{key}" class="wide"></div>'
                    "</section>" for key, heading in PARTS)
    frame = (f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{name}</title>'
             '<meta name="viewport" content="width=device-width"><link rel="icon" href="data:,">'
             f'<link rel="stylesheet" href="/style.css"></head><body data-token="{html.escape(token)}"><header>'
             f'<h1>{name}</h1><span id="counts"></span><span id="left_out" class="note"></span>'
             '<span id="status" class="note"></span></header><section hidden><div id="runs" class="wide"></div>'
             f'</section>{parts}<script src="/charts.js"></script><script src="/live.js"></script></body></html>\n')
    live_script = files("proximo.bench.live").joinpath("live.js").read_text(encoding="utf-8")
    return {"/": ("text/html; charset=utf-8", frame), "/live.js": ("text/javascript; charset=utf-8", live_script),
            "/charts.js": ("text/javascript; charset=utf-8", charts_script()),
            "/style.css": ("text/css; charset=utf-8", PAGE_STYLE + CHART_STYLE + LIVE_STYLE)}
