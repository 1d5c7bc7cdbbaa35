// The live page: asks every two seconds for what is new and shows it. Everything from a run is set as text.
"use strict";
const SECONDS = 2, runs = new Map(), token = document.body.dataset.token;
const charts = new Charts(document.getElementById("charts")), byId = id => document.getElementById(id);
let answered = Date.now(), videosShown = "";

async function poll() {
  const have = [...runs].map(([id, run]) => [id, run.metrics.stamp, run.metrics.rows.length, run.episodes.stamp,
    run.episodes.rows.length].join(".")).join(",");
  try {
    const answer = await fetch(`/data?token=${token}&have=${have}`);
    const found = await answer.json();
    let news = found.runs.length !== runs.size;
    for (const run of found.runs) {
      const old = runs.get(run.id);
      for (const part of ["metrics", "episodes"]) {
        news = news || run[part].rows.length > 0;
        if (run[part].from > 0 && old) run[part].rows = old[part].rows.concat(run[part].rows);
      }
    }
    runs.clear();
    for (const run of found.runs) runs.set(run.id, run);
    answered = Date.now();
    show(found);
    if (news) charts.show(found.runs, found.runs.find(run => run.state === "running")?.env_id);
  } catch (error) { console.log(error); }
  document.body.classList.toggle("lost", Date.now() - answered > 10000);
  byId("status").textContent = Date.now() - answered > 10000
    ? `No answer for ${duration((Date.now() - answered) / 1000)}: is proximo live still running?` : "updated every 2 s";
  setTimeout(poll, 1000 * SECONDS * (document.hidden ? 5 : 1));
}

function show(found) {
  const states = ["running", "silent", "failed", "stopped", "finished"], counts = states.map(word =>
    [found.runs.filter(run => run.state === word).length, word]).filter(([count]) => count);
  byId("counts").textContent = found.runs.length ? counts.map(one => one.join(" ")).join(", ") : "No run yet. A run appears here "
    + "after its first iteration.";
  byId("left_out").textContent = found.left_out ? `${found.left_out} older runs are not shown.` : "";
  table(byId("runs"), ["state", "run", "return", "steps", "steps/s", "its time", "time left", "last line", "environment", "setting", "seed"],
    [...found.runs].sort((a, b) => states.indexOf(a.state) - states.indexOf(b.state)), runCells);
  warnings(found.runs);
  table(byId("episodes"), ["run", "newest episodes, return (length)"], found.runs.filter(run => run.newest.length), (run, row) => {
    make("td", row, "", run.name);
    make("td", row, "", run.newest.map(([, ret, length]) => `${number(ret)} (${number(length)})`).join(", "));
  });
  const [head, ...rows] = found.settings;
  table(byId("settings"), head || [], rows, (cells, row) => cells.forEach(cell => make("td", row, "", cell)));
  videos(found.runs);
}

function table(place, head, rows, fill) {
  place.parentNode.hidden = !rows.length;
  const body = make("table");
  const line = make("tr", make("thead", body));
  for (const name of head) make("th", line, "", name);
  const lines = make("tbody", body);
  for (const one of rows) fill(one, make("tr", lines));
  place.replaceChildren(body);
}

function runCells(run, row) {
  make("span", make("td", row), "state " + run.state, run.state).title = run.why;
  make("bdi", make("td", row, "name"), "", run.name).title = `${run.name}. ${run.why}`;
  make("td", row, "short", number(run.mean_return));
  const steps = make("td", row, "short");
  Object.assign(make("progress", steps), {max: 1, value: run.share});
  make("span", steps, "", ` ${number(run.step)} of ${number(run.of)}`);
  make("td", row, "short", number(run.sps));
  const shares = Object.entries(run.shares).map(([part, share]) => `${part} ${Math.round(100 * share)} %`);
  make("td", row, "short", shares.join(", ") || "-").title = "shares of the newest iterations; proximo profile measures more parts";
  make("td", row, "short", run.left === null ? "-" : duration(run.left));
  make("td", row, "short", run.reading ? "still reading" : run.age === null ? "-" : duration(run.age) + " ago");
  make("td", row, "", run.env_id);
  make("td", row, "setting", run.label).title = run.label;
  make("td", row, "", run.seed);
}

function warnings(found) {  // what holds for several runs is said once
  const list = make("ul"), groups = new Map();
  const say = (what, advice, which) => groups.set(what, {advice, runs: [...(groups.get(what)?.runs || []), which]});
  for (const run of found) {
    if (run.state === "silent") say("silent", run.why, run.name);
    if (run.state === "stopped") say("stopped", "No process writes to them. Continue a run with: proximo resume RUN", run.name);
    if (run.state === "failed" && !run.failure) say("numbers were not finite", "This says where: proximo doctor RUN/repro", run.name);
    if (run.skipped) say("only the end of a very long log is shown", "", run.name);
    for (const one of run.warnings) say(`${one.metric} is ${one.side} its usual range`, one.advice, `${run.name} (${number(one.value)})`);
    if (run.failure) make("pre", make("li", list, "", `${run.name} failed. The last lines of its log:`), "", run.failure);
  }
  for (const [what, {advice, runs}] of groups) {
    const item = make("li", list);
    make("b", item, "", what + ": ");
    make("span", item, "", `${runs.slice(0, 6).join(", ")}${runs.length > 6 ? ` and ${runs.length - 6} more` : ""}. ${advice}`);
  }
  byId("warnings").replaceChildren(list);
  byId("warnings").parentNode.hidden = !list.children.length;
}

function videos(found) {
  const shown = JSON.stringify(found.map(run => run.videos));
  if (shown === videosShown) return;  // a video that plays is left alone
  videosShown = shown;
  const place = byId("videos");
  place.replaceChildren();
  place.parentNode.hidden = !found.some(run => run.videos.length);
  for (const run of found.filter(run => run.videos.length)) {
    const card = make("figure", place, "video"), caption = make("figcaption", card, "note", run.name + " "), choice = make("select", caption);
    for (const name of run.videos) make("option", choice, "", name).value = name;
    const put = () => {
      const isGif = choice.value.endsWith(".gif"), screen = make(isGif ? "img" : "video");
      Object.assign(screen, {src: `/video/${run.id}/${encodeURIComponent(choice.value)}`}, isGif ? {} : {controls: true, loop: true,
        muted: true, preload: "metadata"});
      card.querySelector("img,video")?.remove();
      card.prepend(screen);
    };
    choice.onchange = put;
    put();
  }
}

poll();
