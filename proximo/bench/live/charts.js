// Curves that a reader can zoom, hover over and smooth. The live page and the report share it; it fetches nothing.
// Everything that comes from a run is set as text, never as HTML.
"use strict";
const COLORS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#B8860B", "#56B4E9", "#7B5EA7", "#7A7A7A"];
const DASHES = [[], [7, 4], [2, 3]];  // of the first eight lines, of the next eight, ...
const TIMES = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400];  // between ticks

function make(tag, parent, kind, text) {
  const node = document.createElement(tag);
  if (kind) node.className = kind;
  if (text !== undefined) node.textContent = text;
  if (parent) parent.append(node);
  return node;
}

function lineStyle(place) {  // of the line with this number
  return {color: COLORS[place % COLORS.length], dash: DASHES[Math.floor(place / COLORS.length) % DASHES.length]};
}

function swatch(parent, {color, dash}) {  // filled, or a ring with dashes
  Object.assign(make("i", parent, "swatch").style, dash.length ? {border: `2px ${dash[0] > 2 ? "dashed" : "dotted"} ${color}`}
    : {background: color});
}

function number(value, digits = 4) {
  if (value === null || value === undefined) return "-";
  for (const [unit, name] of [[1e9, "G"], [1e6, "M"], [1e4, "k"]])
    if (Math.abs(value) >= unit) return +(value / (name === "k" ? 1e3 : unit)).toPrecision(digits) + name;
  return String(+value.toPrecision(digits));
}

function duration(seconds, step = Infinity) {  // in two units, or in as many as tell times apart that differ by a step
  const s = Math.round(seconds), units = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];
  const first = units.findIndex(([size]) => s >= size || size === 1);
  const last = Math.max(first + 1, units.findIndex(([size]) => step >= size || size === 1));
  return units.slice(first, last + 1).map(([size, name], k) => `${Math.floor((k ? s % units[first + k - 1][0] : s) / size)} ${name}`).join(" ");
}

function ticks(low, high, count, isTime) {  // values and their texts, in which neighbours differ
  const rough = (high - low) / count || 1, power = 10 ** Math.floor(Math.log10(rough)), found = [];
  const step = isTime && TIMES.find(seconds => rough > 0.5 && seconds >= rough) || power * [1, 2, 5, 10].find(k => k * power >= rough);
  const digits = Math.min(12, Math.max(4, Math.ceil(Math.log10(Math.max(Math.abs(low), Math.abs(high)) / step)) + 1));
  for (let k = Math.ceil(low / step); k * step <= high + step * 1e-9 && found.length < 50; k++) {
    const value = +(k * step).toPrecision(12);
    found.push([value, !isTime ? number(value, digits) : step < 1 ? `${number(value, digits)} s`
      : duration(value, step).replace(/( 0 (s|min|h))+$/, "")]);
  }
  return found;
}

class Chart {  // one panel: series are {name, color, dash, points: [[x, raw, smooth], ...]}
  constructor(parent, title, note, view, redraw) {
    this.view = view; this.series = []; this.hover = null; this.drag = null;
    this.root = make("div", parent, "chart");
    make("h3", this.root, "", title).title = note;
    this.canvas = make("canvas", this.root);
    this.tip = make("div", this.root, "tip");
    const at = event => event.clientX - this.canvas.getBoundingClientRect().left;
    this.canvas.onpointermove = event => { this.hover = [at(event), event.offsetY]; this.draw(); };
    this.canvas.onpointerleave = () => { this.hover = this.drag = null; this.draw(); };
    this.canvas.onpointerdown = event => { this.drag = at(event); };
    this.canvas.onpointerup = event => {
      const ends = [this.drag, at(event)].sort((a, b) => a - b);
      if (this.drag !== null && ends[1] - ends[0] > 6) { view.range = ends.map(this.toX); redraw(); }
      this.drag = null; this.draw();
    };
    this.canvas.ondblclick = () => { view.range = null; redraw(); };
  }

  range() {  // of x, and of y where x is in sight; single raw values may leave it
    const all = this.series.flatMap(one => one.points);
    let [x0, x1] = this.view.range || [Infinity, -Infinity];
    if (!this.view.range) for (const [x] of all) { x0 = Math.min(x0, x); x1 = Math.max(x1, x); }
    if (!(x0 <= x1)) [x0, x1] = [0, 1];  // no point at all
    const seen = all.filter(([x]) => x >= x0 && x <= x1), raw = seen.map(p => p[1]).sort((a, b) => a - b);
    const cut = raw.length > 50 ? Math.floor(raw.length / 50) : 0;
    let y0 = raw.length ? raw[cut] : 0, y1 = raw.length ? raw[raw.length - 1 - cut] : 1;
    for (const [, , y] of seen) { y0 = Math.min(y0, y); y1 = Math.max(y1, y); }
    const isFlat = y1 - y0 <= 1e-5 * Math.abs(y1);  // numbers have six digits
    const margin = isFlat ? Math.abs(y1) * 0.1 || 1 : (y1 - y0) * 0.06;
    return [x0, x1 > x0 ? x1 : x0 + 1, y0 - margin, y1 + margin];
  }

  draw() {
    const width = this.root.clientWidth, height = 200, ratio = devicePixelRatio || 1, pen = this.canvas.getContext("2d");
    if (!width) return;
    this.canvas.width = width * ratio; this.canvas.height = height * ratio; this.canvas.style.height = height + "px";
    pen.scale(ratio, ratio);
    const style = getComputedStyle(this.root), ink = style.color, [left, right, top, bottom] = [52, width - 12, 8, height - 22];
    const [x0, x1, y0, y1] = this.range();
    const X = x => left + (x - x0) / (x1 - x0) * (right - left), Y = y => bottom - (y - y0) / (y1 - y0) * (bottom - top);
    this.toX = pixel => x0 + (Math.min(Math.max(pixel, left), right) - left) / (right - left) * (x1 - x0);
    pen.font = "11px system-ui, sans-serif"; pen.fillStyle = ink; pen.strokeStyle = ink; pen.lineWidth = 1;
    const across = ticks(x0, x1, Math.max(2, width / 80), this.view.axis);
    for (const [value, text, vertical] of [...ticks(y0, y1, 4), ...across.map(one => [...one, true])]) {
      pen.globalAlpha = 0.12; pen.beginPath();
      pen.moveTo(vertical ? X(value) : left, vertical ? top : Y(value));
      pen.lineTo(vertical ? X(value) : right, vertical ? bottom : Y(value)); pen.stroke();
      pen.globalAlpha = 0.75; pen.textAlign = vertical ? "center" : "right";
      pen.fillText(text, vertical ? X(value) : left - 6, vertical ? height - 6 : Y(value) + 4, vertical ? 80 : left - 6);
    }
    if (!this.series.some(one => one.points.length)) {
      pen.globalAlpha = 0.6; pen.textAlign = "center"; pen.fillText("nothing logged yet", width / 2, height / 2);
    }
    pen.save(); pen.beginPath(); pen.rect(left, top - 4, right - left, bottom - top + 8); pen.clip(); pen.lineJoin = "round";
    for (const column of [1, 2]) for (const one of this.series) {
      pen.globalAlpha = column === 2 ? 1 : this.series.length > 6 ? 0.12 : 0.28; pen.lineWidth = column === 2 ? 1.8 : 1;
      pen.strokeStyle = pen.fillStyle = one.color; pen.setLineDash(column === 2 ? one.dash : []); pen.beginPath();
      for (const point of one.points) pen.lineTo(X(point[0]), Y(point[column]));
      pen.stroke();
      if (column === 2 && one.points.length < 30) for (const [x, , y] of one.points) {
        pen.beginPath(); pen.arc(X(x), Y(y), 2.5, 0, 7); pen.fill(); }
    }
    pen.restore();
    if (this.drag !== null && this.hover) {
      pen.globalAlpha = 0.15; pen.fillStyle = ink; pen.fillRect(this.drag, top, this.hover[0] - this.drag, bottom - top); }
    this.drawHover(pen, X, Y, ink, [left, right, top, bottom]);
  }

  drawHover(pen, X, Y, ink, [left, right, top, bottom]) {
    this.tip.hidden = !this.hover || this.hover[0] < left || this.hover[0] > right;
    if (this.tip.hidden) return;
    const x = this.toX(this.hover[0]), near = [];
    for (const one of this.series) {
      let low = 0, high = one.points.length - 1;
      while (high - low > 1) { const middle = (low + high) >> 1; if (one.points[middle][0] < x) low = middle; else high = middle; }
      const found = [one.points[low], one.points[high]].filter(p => p).sort((a, b) => Math.abs(a[0] - x) - Math.abs(b[0] - x))[0];
      if (found && Math.abs(X(found[0]) - this.hover[0]) < 40) near.push({one, found, away: Math.abs(Y(found[2]) - this.hover[1])});
    }
    pen.globalAlpha = 0.4; pen.strokeStyle = ink; pen.beginPath();
    pen.moveTo(this.hover[0], top); pen.lineTo(this.hover[0], bottom); pen.stroke(); pen.globalAlpha = 1;
    this.tip.replaceChildren(make("div", null, "dim", this.view.axis ? duration(x) : `step ${Math.round(x).toLocaleString("en")}`));
    for (const {one, found} of near.sort((a, b) => a.away - b.away).slice(0, 8)) {
      pen.fillStyle = one.color; pen.beginPath(); pen.arc(X(found[0]), Y(found[2]), 3.5, 0, 7); pen.fill();
      const line = make("div", this.tip);
      swatch(line, one);
      make("b", line, "", number(found[2]));
      make("span", line, "dim", ` ${found[1] === found[2] ? "" : `(${number(found[1])}) `}${one.name}`);
    }
    this.tip.style.left = this.hover[0] > (left + right) / 2 ? "auto" : `${this.hover[0] + 14}px`;
    this.tip.style.right = this.hover[0] > (left + right) / 2 ? `${right - this.hover[0] + 26}px` : "auto";
  }
}

function smoothed(pairs, weight) {  // exponential mean without the bias of its start; [x, raw] -> [x, raw, smooth]
  let mean = 0, total = 0;
  return pairs.map(([x, y]) => { mean = weight * mean + y; total = weight * total + 1; return [x, y, mean / total]; });
}

function meanOfSeeds(series) {  // one curve for each setting, where all of its runs have points
  const groups = new Map();
  for (const one of series) groups.set(one.label, [...(groups.get(one.label) || []), one]);
  return [...groups.values()].flatMap(all => {
    const seeds = new Map(all.filter(one => one.points.length).map(one => [one.seed, one]));  // a copy is no other seed
    const kept = [...seeds.values()], first = Math.max(...kept.map(one => one.points[0][0]));
    const last = Math.min(...kept.map(one => one.points.at(-1)[0]));
    if (kept.length < 2 || first >= last) return kept;
    const places = kept.map(() => 0), points = [];
    for (let k = 0; k <= 200; k++) {
      const x = first + (last - first) * k / 200;
      const values = kept.map((one, i) => {
        while (one.points[places[i] + 1] && one.points[places[i] + 1][0] <= x) places[i]++;
        return one.points[places[i]];
      });
      points.push([x, ...[1, 2].map(column => values.reduce((sum, value) => sum + value[column], 0) / values.length)]);
    }
    return {...all[0], name: `${all[0].label}, mean of ${kept.length} seeds`, points};
  });
}

class Charts {  // the controls, the legend and all panels of one environment at a time
  constructor(root) {
    this.view = {axis: 0, range: null}; this.runs = []; this.panels = new Map(); this.hidden = new Set();
    const bar = make("div", root, "controls"), option = (text, node) => { make("label", bar, "", text).append(node); return node; };
    const update = () => { this.view.range = null; this.update(); };
    this.env = option("environment ", make("select")); this.env.onchange = update;
    this.axis = option("against ", make("select")); this.axis.onchange = () => { this.view.axis = +this.axis.value; update(); };
    ["environment steps", "time"].forEach((text, k) => { make("option", this.axis, "", text).value = k; });
    this.weight = option("smooth losses ", make("input")); this.weight.oninput = () => this.update();
    Object.assign(this.weight, {type: "range", min: 0, max: 0.98, step: 0.02, value: 0.6});
    this.mean = option("mean of seeds ", make("input")); this.mean.type = "checkbox"; this.mean.onchange = () => this.update();
    this.reset = make("button", bar, "", "whole range"); this.reset.onclick = update;
    this.legend = make("div", root, "legend"); this.grid = make("div", root, "grid");
    make("p", root, "note", "Bold: mean of the last 100 episodes, or the smoothed metric. Faint: single values. Drag to zoom all "
      + "panels, double-click for the whole range, click in the legend to hide a curve.");
    new ResizeObserver(() => this.draw()).observe(this.grid);
  }

  show(runs, first) { this.runs = runs; this.first = first; this.update(); }  // first: the environment to begin with

  update() {
    const names = [...new Set(this.runs.map(run => run.env_id))];
    if (names.join("\n") !== [...this.env.options].map(one => one.value).join("\n")) {
      const before = this.env.value || this.first;
      this.env.replaceChildren(...names.map(name => make("option", null, "", name)));
      if (names.includes(before)) this.env.value = before;
    }
    this.env.parentNode.hidden = names.length < 2;
    const runs = this.runs.filter(run => run.env_id === this.env.value), single = new Set(runs.map(run => run.label)).size < 2;
    for (const run of runs) run.key = single ? run.name : run.label;
    const keys = [...new Set(runs.map(run => run.key))], style = key => lineStyle(keys.indexOf(key));
    this.legend.replaceChildren(...keys.map(key => this.chip(key, style(key))));
    const seen = runs.filter(run => !this.hidden.has(run.key)), games = runs.some(run => run.measure === "length");
    const specs = [["return", 2, 4], ["length of episodes", 3, 5]].map(([title, line, raw]) => ({title, line, raw, from: "episodes"}));
    if (games) specs.reverse();
    const order = name => ["eval/", "losses/"].findIndex(begin => name.startsWith(begin)) + 1 || 3;
    for (const name of [...new Set(runs.flatMap(run => run.names))].sort((a, b) => order(a) - order(b)))
      specs.push({title: name, from: "metrics"});
    for (const [title, panel] of this.panels)
      if (!specs.some(spec => spec.title === title)) { panel.root.remove(); this.panels.delete(title); }
    for (const spec of specs) {
      if (!this.panels.has(spec.title)) this.panels.set(spec.title, new Chart(this.grid, spec.title.replace(/^(losses|charts)\//, ""),
        spec.title, this.view, () => this.draw()));
      const series = seen.filter(run => spec.from === "episodes" || run.names.includes(spec.title)).map(run => ({
        label: run.label, seed: run.seed, name: single ? run.name : `${run.label} seed ${run.seed}`, ...style(run.key), points: this.points(run, spec)}));
      this.panels.get(spec.title).series = this.mean.checked ? meanOfSeeds(series) : series;
    }
    this.mean.parentNode.hidden = new Set(runs.map(run => run.label)).size === runs.length;
    this.draw();
  }

  points(run, spec) {
    const rows = run[spec.from].rows, axis = this.view.axis, raw = spec.raw || 2 + run.names.indexOf(spec.title);
    const known = rows.filter(row => row[raw] !== null && row[axis] !== null);
    return spec.line ? known.map(row => [row[axis], row[raw], row[spec.line]])
      : smoothed(known.map(row => [row[axis], row[raw]]), +this.weight.value);
  }

  chip(key, style) {
    const chip = make("button", null, this.hidden.has(key) ? "chip off" : "chip");
    swatch(chip, style);
    make("span", chip, "", key);
    chip.onclick = () => { if (!this.hidden.delete(key)) this.hidden.add(key); this.update(); };
    return chip;
  }

  draw() {
    this.reset.hidden = !this.view.range;
    for (const panel of this.panels.values()) panel.draw();
  }
}
