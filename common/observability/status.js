"use strict";
// Updates the page from /status.json every second. Texts are inserted as text, never as markup.

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
  waiting: "badge care", preparing: "badge care", failed: "badge bad",
};
const PEERS = {
  idle: ["not connected", "muted"], awaited: ["waiting for it", "care"], up: ["up", "good"],
  lost: ["lost, waiting for it", "bad"], unknown: ["connects on demand", "muted"],
};
const MARKS = { done: "✓ ", failed: "✗ ", running: "", pending: "" };

function header(now) {
  write("state", now.state, LOOKS[now.state]);
  write("uptime", duration(now.uptime));
  const [words, look] = PEERS[now.peer];
  write("peer-state", `${words} (${duration(now.peer_since)})`, look);
  show("reason", now.state === "failed" ? now.reason : null);
}

function progress(now) {
  byId("stages").replaceChildren(...now.stages.map((stage) => {
    const item = element("li", { class: stage.state }, MARKS[stage.state] + stage.name);
    if (stage.state === "running") item.setAttribute("aria-current", "step");
    return item;
  }));
  const steps = now.steps.map((step) => {
    const bar = element("progress", { "aria-label": step.title });
    if (step.total) {
      bar.max = step.total;
      bar.value = Math.min(step.done, step.total);
    }
    const left = step.total && step.per_second > 0
      ? `, ${duration(Math.max(step.total - step.done, 0) / step.per_second)} left` : "";
    const count = step.total ? `${whole(step.done)} of ${whole(step.total)}` : whole(step.done);
    const figures = `${count}, ${whole(step.per_second)}/s${left}`;
    return element("div", { class: "step" },
      element("div", {}, element("span", {}, step.title), element("span", {}, figures)), bar);
  });
  byId("steps").replaceChildren(...steps);
}

function daysLeft(days) {
  if (days < 0) return ["expired", "bad"];
  return [`${whole(Math.floor(days))} days left`, days < 30 ? "care" : ""];
}

// Each returns a text and a class, for a value that is not null.
const FORMATS = {
  count: (value) => [whole(value), ""], bytes: (value) => [bytes(value), ""],
  duration: (value) => [duration(value), ""], days: daysLeft,
};

function network(cards) {
  byId("cards").replaceChildren(...cards.map((card) => {
    const [text, look] = card.value === null ? ["none", ""] : FORMATS[card.format](card.value);
    return element("div", {}, element("dt", {}, card.title),
      element("dd", {}, element("span", { class: look }, text)));
  }));
}

const WIDE = 400, HIGH = 190, LEFT = 48, BOTTOM = 22, TOP = 8;

function ticks(low, high) {
  const rough = (high - low) / 3;
  const size = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((times) => times * size).find((each) => each >= rough);
  const found = [];
  for (let at = Math.ceil(low / step) * step; at <= high + step / 1e6; at += step) found.push(at);
  const digits = Math.max(0, -Math.floor(Math.log10(step)));
  return found.map((value) => [value, value.toLocaleString("en", {
    minimumFractionDigits: digits, maximumFractionDigits: digits })]);
}

function curve(title, points, most) {
  const values = points.map(([, y]) => y);
  let [low, high] = [Math.min(...values), Math.max(...values)];
  if (high - low < 1e-3) [low, high] = [low - 5e-3, high + 5e-3];
  const x = (step) => LEFT + (WIDE - LEFT - 6) * step / most;
  const y = (value) => TOP + (HIGH - TOP - BOTTOM) * (high - value) / (high - low);
  const drawing = shape("svg", { viewBox: `0 0 ${WIDE} ${HIGH}`, role: "img",
    "aria-label": `${title}: ${points.length} points, the last ${values.at(-1).toFixed(4)}`,
    "data-points": points.length, "data-last-step": points.at(-1)[0] });
  for (const [value, label] of ticks(low, high)) {
    drawing.append(
      shape("line", { class: "axis", x1: LEFT, x2: WIDE, y1: y(value), y2: y(value) }),
      shape("text", { x: LEFT - 5, y: y(value) + 4, "text-anchor": "end" }, label));
  }
  drawing.append(
    shape("text", { x: LEFT, y: HIGH - 5 }, "0"),
    shape("text", { x: WIDE - 4, y: HIGH - 5, "text-anchor": "end" }, `step ${whole(most)}`));
  if (points.length > 1) {
    const corners = points.map(([step, value]) => `${x(step).toFixed(1)},${y(value).toFixed(1)}`);
    drawing.append(shape("polyline", { class: "curve", points: corners.join(" ") }));
  }
  if (points.length < 40) {
    for (const [step, value] of points) {
      drawing.append(shape("circle", { class: "dot", cx: x(step), cy: y(value), r: 2.5 }));
    }
  }
  const caption = `${title}, currently ${values.at(-1).toFixed(4)}`;
  return element("figure", {}, drawing, element("figcaption", {}, caption));
}

function training(found) {
  byId("training-section").hidden = found === null;
  if (found === null) return;
  const tested = found.tests.filter((test) => test.loss !== null);
  const losses = found.losses.length
    ? found.losses.filter(([, loss]) => loss !== null) : tested.map((t) => [t.step, t.loss]);
  const aucs = found.tests.filter((test) => test.auc !== null).map((t) => [t.step, t.auc]);
  const drawn = [];
  if (losses.length) drawn.push(curve("Loss", losses, found.steps));
  if (aucs.length) drawn.push(curve("AUC on the test table", aucs, found.steps));
  const where = `step ${whole(found.step)} of ${whole(found.steps)}, `
    + `${found.epoch} of ${found.epochs} epochs done`;
  byId("curves").replaceChildren(element("p", { class: "muted" }, where), ...drawn);
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
  write("audited", `audits so far: ${whole(found.audits)}, the last after step `
    + `${whole(found.step)}; strongest attack:`);
  const [strongest, ...others] = found.attacks.map((attack) => gauge(attack, found));
  byId("strongest").replaceChildren(strongest);
  byId("attacks").replaceChildren(...others);
}

function gauge(attack, limits) {
  const x = (auc) => 10 + 380 * (auc - 0.5) / 0.5;
  const drawing = shape("svg", { viewBox: "0 0 400 44", role: "img",
    "aria-label": `${attack.attack}: AUC ${attack.auc.toFixed(2)}, chance is 0.5` },
    shape("rect", { class: "track", x: x(0.5), y: 8, width: x(1) - x(0.5), height: 14, rx: 7 }),
    shape("rect", { class: "reach", x: x(attack.low), y: 8, height: 14,
      width: Math.max(x(attack.high) - x(attack.low), 1) }),
    shape("circle", { class: "mark", cx: x(attack.auc), cy: 15, r: 6 }));
  for (const limit of [limits.warn_above, limits.stop_above]) {
    if (limit === null) continue;
    drawing.append(shape("line", { class: "limit", x1: x(limit), x2: x(limit), y1: 2, y2: 28 }));
  }
  for (const [auc, label, anchor] of
    [[0.5, "0.5 chance", "start"], [1, "1.0 certainty", "end"]]) {
    drawing.append(shape("text", { x: x(auc), y: 40, "text-anchor": anchor }, label));
  }
  const over = SCOPES[attack.over] ?? attack.over;
  const range = `${attack.low.toFixed(2)}–${attack.high.toFixed(2)}`;
  return element("figure", {}, drawing,
    element("figcaption", {}, `${attack.attack}, ${over}: ${attack.auc.toFixed(2)} (${range})`));
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

// --- every second ---

async function refresh() {
  try {
    const answer = await fetch("status.json",
      { cache: "no-store", signal: AbortSignal.timeout(5 * INTERVAL) });
    if (!answer.ok) throw new Error(`HTTP ${answer.status}`);
    const now = await answer.json();
    lastReply = Date.now();
    header(now);
    progress(now);
    network(now.cards);
    training(now.training);
    log(now.log);
    show("silence", null);
  } catch {
    const silent = (Date.now() - lastReply) / 1000;
    show("silence", `No answer for ${duration(silent)}: this party has ended or cannot be `
      + "reached. Showing the last known state.");
  }
  setTimeout(refresh, document.hidden ? 5 * INTERVAL : INTERVAL);
}

refresh();
