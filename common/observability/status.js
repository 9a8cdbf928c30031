"use strict";
// Updates the page from /status.json every second; a page in a run directory has its last values in
// itself. Texts are inserted as text, never as markup.

const INTERVAL = 1000; // milliseconds
const SVG = "http://www.w3.org/2000/svg";
const byId = (id) => document.getElementById(id);
// What an audit covers.
const SCOPES = {
  "epochs": "all epochs",
  "batch-0": "first batch",
  "batches-0-4": "batches 0–4",
  "batches-5-9": "batches 5–9",
  "batches-10-19": "batches 10–19",
  "later-batches": "all later batches",
  "batches": "last batches",
};
let lastReply = Date.now();
let lastState = "";
let shownLog = "";

function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

function shape(name, attributes, ...children) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

function write(id, text, look) {
  const target = byId(id);
  if (target.textContent !== text) target.textContent = text;
  if (look !== undefined) target.className = look;
}

function show(id, text) {
  byId(id).hidden = !text;
  if (text) write(id, text);
}

const whole = (number) => Math.round(number).toLocaleString("en");

function bytes(number) {
  for (const unit of ["B", "kB", "MB", "GB"]) {
    if (number < 1000) return `${unit === "B" ? number : number.toPrecision(3)} ${unit}`;
    number /= 1000;
  }
  return `${number.toPrecision(3)} TB`;
}

function duration(seconds) {
  if (!Number.isFinite(seconds)) return "…";
  const s = Math.floor(seconds);
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min ${s % 60} s`;
  if (s < 86400) return `${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} min`;
  return `${Math.floor(s / 86400)} d ${Math.floor((s % 86400) / 3600)} h`;
}

// --- sections of the page ---

const LOOKS = {
  running: "badge good", serving: "badge good", finished: "badge good",
  waiting: "badge care", preparing: "badge care", stopped: "badge care", failed: "badge bad",
};
const PEERS = {
  idle: ["not connected", "muted"], awaited: ["waiting for it", "care"], up: ["up", "good"],
  lost: ["lost, waiting for it", "bad"], unknown: ["connects on demand", "muted"],
};
const STAGES = { align: "Alignment", train: "Training", evaluate: "Evaluation", serve: "Serving" };
const WORK = {
  align: "computing the private set union", train: "preparing the data",
  evaluate: "estimating the metrics of the model",
};
const MARKS = { done: "✓ ", failed: "✗ ", stopped: "■ ", running: "", pending: "" };
const ENDINGS = { finished: "Finished", failed: "Failed", stopped: "Stopped" };

const hasEnded = (now) => now.state in ENDINGS;

function header(now) {
  write("state", now.state, LOOKS[now.state]);
  write("uptime", `${hasEnded(now) ? "ran" : "up"} ${duration(now.uptime)}`);
  const [words, look] = hasEnded(now) ? ["disconnected", "muted"] : PEERS[now.peer];
  write("peer-state", hasEnded(now) ? words : `${words} (${duration(now.peer_since)})`, look);
  outcome(now);
}

function outcome(now) {
  byId("outcome").hidden = !hasEnded(now);
  if (!hasEnded(now)) return;
  byId("outcome").className = `banner ${now.state}`;
  const at = now.stages.find((stage) => ["failed", "stopped"].includes(stage.state));
  const where = at ? ` during ${STAGES[at.name].toLowerCase()}` : "";
  write("outcome-title", `${ENDINGS[now.state]}${where} after ${duration(now.uptime)}`);
  show("reason", now.state === "finished" ? null : now.reason);
  show("advice", now.advice);
  const results = now.stages.filter((stage) => stage.result);
  byId("results").hidden = !results.length;
  byId("results").replaceChildren(...results.map(
    (stage) => element("li", {}, `${STAGES[stage.name]}: ${stage.result}`)));
}

function progress(now) {
  const stages = now.stages.filter((stage) => stage.name !== "serve");
  byId("progress-section").hidden = !stages.length;
  byId("stages").replaceChildren(...stages.map((stage) => {
    const percent = `${Math.floor(100 * stage.fraction)}%`;
    const bar = element("progress",
      { "max": 1, "value": stage.fraction, "aria-label": STAGES[stage.name] });
    const label = element("span", { class: "label" },
      element("span", {}, MARKS[stage.state] + STAGES[stage.name]),
      element("span", { class: "percent" },
        ["done", "pending"].includes(stage.state) ? "" : percent));
    const item = element("li", { class: stage.state }, label, bar);
    if (stage.state === "running") item.setAttribute("aria-current", "step");
    return item;
  }));
  const current = hasEnded(now) ? undefined : stages.find((stage) => stage.state === "running");
  write("where", current ? `${STAGES[current.name]}:` : "");
  byId("where").parentElement.hidden = !current;
  write("time-left", current ? [position(now, current), timeLeft(now)].join(", ") : "");
  steps(now.steps);
}

function position(now, stage) {
  const found = now.training;
  if (stage.name === "train" && found !== null) {
    return `step ${whole(found.step)} of ${whole(found.steps)}, `
      + `epoch ${Math.min(found.epoch + 1, found.epochs)} of ${found.epochs}`;
  }
  return WORK[stage.name];
}

function timeLeft(now) {
  if (now.state === "waiting") return "waiting for the peer";
  if (now.time_left === null) return "no estimate of the time left yet";
  const { seconds, is_at_least: isAtLeast } = now.time_left;
  if (seconds < 1) return "a moment left";
  return `${isAtLeast ? "at least" : "about"} ${duration(seconds)} left`;
}

function steps(current) {
  byId("steps-section").hidden = !current.length;
  byId("steps").replaceChildren(...current.map((step) => {
    const bar = element("progress", { "aria-label": step.title });
    if (step.total) {
      bar.max = step.total;
      bar.value = Math.min(step.done, step.total);
    }
    const count = step.total ? `${whole(step.done)} of ${whole(step.total)}` : whole(step.done);
    const figures = `${count}, ${whole(step.per_second)}/s`;
    return element("div", { class: "step" },
      element("div", {}, element("span", {}, step.title), element("span", {}, figures)), bar);
  }));
}

function daysLeft(days) {
  if (days < 0) return ["expired", "bad"];
  return [`${whole(Math.floor(days))} days left`, days < 30 ? "care" : ""];
}

function latency(seconds) {
  return seconds < 1 ? `${(1000 * seconds).toPrecision(3)} ms` : `${seconds.toPrecision(3)} s`;
}

// Each returns a text and a class, for a value that is not null.
const FORMATS = {
  count: (value) => [Number.isInteger(value) || value >= 10 ? whole(value) : value.toFixed(1), ""],
  bytes: (value) => [bytes(value), ""],
  duration: (value) => [duration(value), ""], days: daysLeft,
  latency: (value) => [latency(value), ""],
};
const LABELS = { "0.5": "median", "0.99": "99% below" };

function cards(now) {
  byId("requests-section").hidden = now.requests === null;
  for (const [section, place] of [["network", "network-cards"], ["requests", "request-cards"]]) {
    const shown = now.cards.filter((card) => card.section === section).flatMap(entries);
    byId(place).replaceChildren(...shown);
  }
}

// A card per metric; a metric with labels has one value for each.
function entries(card) {
  const values = card.values.filter((each) => each.value !== null);
  if (!values.length) return [entry(card.title, "none", "")];
  if (card.title === "latency") {
    return values.map((each) =>
      entry(`latency, ${LABELS[each.label] ?? each.label}`, ...FORMATS[card.format](each.value)));
  }
  const total = values.reduce((sum, each) => sum + each.value, 0);
  const reasons = values.filter((each) => each.label)
    .map((each) => `${each.label}: ${whole(each.value)}`).join(", ");
  return [entry(card.title, ...FORMATS[card.format](total), reasons)];
}

function entry(title, text, look, note = "") {
  const made = element("div", {}, element("dt", {}, title),
    element("dd", {}, element("span", { class: look }, text)));
  if (note) made.append(element("dd", { class: "muted" }, note));
  return made;
}

const HIGH = 240, LEFT = 66, BOTTOM = 44, TOP = 8, RIGHT = 10;

// Drawings have the size of their place in pixels, so that texts are as large everywhere.
function placeWidth(place) {
  return Math.max(260, Math.min(place.clientWidth || 600, 1000));
}

function ticks(low, high, count = 4) {
  const rough = (high - low) / count;
  const size = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((times) => times * size).find((each) => each >= rough);
  const found = [];
  for (let at = Math.ceil(low / step) * step; at <= high + step / 1e6; at += step) found.push(at);
  const digits = Math.max(0, -Math.floor(Math.log10(step)));
  return found.map((value) => [value, value.toLocaleString("en", {
    minimumFractionDigits: digits, maximumFractionDigits: digits })]);
}

// `raw` is drawn below `points`; it may be empty.
function curve(axis, caption, points, raw, most, wide) {
  const values = [...points, ...raw].map(([, y]) => y);
  const [least, greatest] = [Math.min(...values), Math.max(...values)];
  const margin = Math.max((greatest - least) / 12, (0.02 - greatest + least) / 2);
  const [low, high] = [least - margin, greatest + margin];
  const x = (step) => LEFT + (wide - LEFT - RIGHT) * step / most;
  const y = (value) => TOP + (HIGH - TOP - BOTTOM) * (high - value) / (high - low);
  const last = points.at(-1)[1].toFixed(4);
  const drawing = shape("svg", { viewBox: `0 0 ${wide} ${HIGH}`, role: "img",
    "aria-label": `${axis} over the steps: ${points.length} points, the last ${last}`,
    "data-points": points.length, "data-last-step": points.at(-1)[0] });
  for (const [value, label] of ticks(low, high)) {
    drawing.append(
      shape("line", { class: "axis", x1: LEFT, x2: wide - RIGHT, y1: y(value), y2: y(value) }),
      shape("text", { x: LEFT - 6, y: y(value) + 4, "text-anchor": "end" }, label));
  }
  for (const [step, label] of ticks(0, most, wide / 130)) {
    if (x(step) > wide - 24) continue;
    drawing.append(
      shape("line", { class: "axis", x1: x(step), x2: x(step), y1: HIGH - BOTTOM,
        y2: HIGH - BOTTOM + 4 }),
      shape("text", { x: x(step), y: HIGH - BOTTOM + 18, "text-anchor": "middle" }, label));
  }
  const middle = (HIGH - BOTTOM + TOP) / 2;
  drawing.append(
    shape("text", { x: (wide + LEFT - RIGHT) / 2, y: HIGH - 6, "text-anchor": "middle" },
      "training step"),
    shape("text", { x: 12, y: middle, "text-anchor": "middle",
      transform: `rotate(-90 12 ${middle})` }, axis));
  const line = (through) => through
    .map(([step, value]) => `${x(step).toFixed(1)},${y(value).toFixed(1)}`).join(" ");
  if (raw.length > 1) drawing.append(shape("polyline", { class: "raw", points: line(raw) }));
  if (points.length > 1) {
    drawing.append(shape("polyline", { class: "curve", points: line(points) }));
  }
  if (points.length < 24) {
    for (const [step, value] of points) {
      drawing.append(shape("circle", { class: "dot", cx: x(step), cy: y(value), r: 3 }));
    }
  }
  return element("figure", {}, drawing,
    element("figcaption", {}, `${caption}; the last value is ${last}.`));
}

function training(found) {
  byId("training-section").hidden = found === null;
  if (found === null) return;
  const wide = placeWidth(byId("curves"));
  const raw = found.losses.filter(([, loss]) => loss !== null);
  const epochs = found.tests.filter((t) => t.loss !== null).map((t) => [t.step, t.loss]);
  const aucs = found.tests.filter((test) => test.auc !== null).map((t) => [t.step, t.auc]);
  const drawn = [];
  if (raw.length) {
    drawn.push(curve("loss", "Training loss: smoothed (thick line) and by step (thin line)",
      found.smoothed_losses, raw, found.steps, wide));
  } else if (epochs.length) {
    drawn.push(curve("loss", "Mean training loss of each epoch", epochs, [], found.steps, wide));
  }
  if (aucs.length) {
    drawn.push(curve("AUC", "AUC on the test table; 0.5 is chance, 1 is perfect", aucs, [],
      found.steps, wide));
  }
  byId("curves").replaceChildren(...drawn);
  audit(found.audit);
}

const VERDICTS = {
  fine: ["within our limits", "good"], warn: ["above a warning limit", "care"],
  stop: ["above the stop limit", "bad"],
};

function audit(found) {
  byId("self-audit-section").hidden = found === null;
  if (found === null) return;
  const [words, look] = VERDICTS[found.verdict];
  write("verdict", words, look);
  write("audited", `Audits so far: ${whole(found.audits)}, the last after step `
    + `${whole(found.step)}. The strongest attack:`);
  const wide = placeWidth(byId("strongest"));
  byId("strongest").replaceChildren(gauge(found.attacks[0], found, wide));
  byId("attacks").replaceChildren(...found.attacks.map((attack) => element("tr", {},
    element("th", { scope: "row" }, attack.attack), element("td", {}, scopeName(attack)),
    element("td", {}, `${attack.auc.toFixed(2)} (${interval(attack)})`))));
}

const scopeName = (attack) => SCOPES[attack.over] ?? attack.over;
const interval = (attack) => `${attack.low.toFixed(2)}–${attack.high.toFixed(2)}`;

function gauge(attack, limits, wide) {
  const x = (auc) => 8 + (wide - 16) * (auc - 0.5) / 0.5;
  const drawing = shape("svg", { viewBox: `0 0 ${wide} 60`, role: "img",
    "aria-label": `${attack.attack}: AUC ${attack.auc.toFixed(2)}, chance is 0.5` },
    shape("rect", { class: "track", x: x(0.5), y: 20, width: x(1) - x(0.5), height: 14, rx: 7 }),
    shape("rect", { class: "reach", x: x(attack.low), y: 20, height: 14,
      width: Math.max(x(attack.high) - x(attack.low), 1) }),
    shape("circle", { class: "mark", cx: x(attack.auc), cy: 27, r: 6 }));
  for (const [limit, name] of [[limits.warn_above, "warn"], [limits.stop_above, "stop"]]) {
    if (limit === null) continue;
    drawing.append(
      shape("line", { class: "limit", x1: x(limit), x2: x(limit), y1: 15, y2: 39 }),
      shape("text", { x: x(limit), y: 11, "text-anchor": limit > 0.9 ? "end" : "middle" }, `${name} ${limit}`));
  }
  for (const [auc, label, anchor] of
    [[0.5, "0.5 chance", "start"], [1, "1 certainty", "end"]]) {
    drawing.append(shape("text", { x: x(auc), y: 54, "text-anchor": anchor }, label));
  }
  return element("figure", {}, drawing, element("figcaption", {},
    `${attack.attack}, ${scopeName(attack)}: AUC ${attack.auc.toFixed(2)} `
    + `(interval ${interval(attack)})`));
}

function log(lines) {
  const newest = JSON.stringify(lines);
  if (newest === shownLog) return;
  shownLog = newest;
  const list = byId("log-lines");
  const follows = list.scrollHeight - list.scrollTop - list.clientHeight < 40;
  list.replaceChildren(...lines.map((entry) => element("li", { class: entry.level },
    element("time", { datetime: entry.time }, entry.time.slice(11, 19)), ` ${entry.text}`)));
  if (follows) list.scrollTop = list.scrollHeight;
}

function display(now) {
  header(now);
  progress(now);
  cards(now);
  training(now.training);
  log(now.log);
  lastState = now.state;
}

// --- every second ---

async function refresh() {
  try {
    const answer = await fetch("status.json",
      { cache: "no-store", signal: AbortSignal.timeout(5 * INTERVAL) });
    if (!answer.ok) throw new Error(`HTTP ${answer.status}`);
    const now = await answer.json();
    lastReply = Date.now();
    display(now);
    show("silence", null);
  } catch {
    const silent = (Date.now() - lastReply) / 1000;
    show("silence", lastState in ENDINGS
      ? "This party has ended. Showing its last state; it is also in status.html of the run "
        + "directory."
      : `No answer for ${duration(silent)}: this party has ended or cannot be reached. Showing the `
        + "last known state.");
  }
  setTimeout(refresh, document.hidden ? 5 * INTERVAL : INTERVAL);
}

const final = byId("final-status");
if (final) {
  const now = JSON.parse(final.textContent);
  display(now);
  window.addEventListener("resize", () => training(now.training));
} else {
  refresh();
}
