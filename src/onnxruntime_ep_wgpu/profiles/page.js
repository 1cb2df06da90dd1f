"use strict";
const profile = JSON.parse(document.getElementById("profile").textContent);
const element = (id) => document.getElementById(id);
const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const make = (tag, text, parent, className = "") => {
  const made = parent.appendChild(document.createElement(tag));
  made.textContent = text;
  made.className = className;
  return made;
};
const events = profile.events.map(([kind, name, begin, duration, thread, args]) => ({
  kind, name, begin, duration, end: begin + duration, thread, args: profile.args[args],
}));

// ---- formatted numbers

const digits = (value) => (value >= 100 ? value.toFixed(0) : value >= 10 ? value.toFixed(1) : value.toFixed(2));
const time = (us) => (us >= 1e6 ? digits(us / 1e6) + " s" : us >= 1e3 ? digits(us / 1e3) + " ms" : digits(us) + " µs");
// Formats a position on the axis, in the unit of the whole axis, with enough digits to distinguish neighbours `tick` apart.
const placed = (us, largest, tick) => {
  const [size, unit] = largest >= 1e6 ? [1e6, " s"] : largest >= 1e3 ? [1e3, " ms"] : [1, " µs"];
  return (us / size).toFixed(Math.max(0, -Math.floor(Math.log10(tick / size) + 1e-9))) + unit;
};
const prefixes = [[1e12, " T"], [1e9, " G"], [1e6, " M"], [1e3, " k"], [1, " "]]; // as in tables of the command
const rate = (value, unit) => { const [size, prefix] = prefixes.find(([least]) => value >= least) || prefixes[4]; return digits(value / size) + prefix + unit; };
const percent = (part) => (part * 100).toFixed(part < 0.0995 ? 1 : 0) + " %";
const COLOURS = { run: 215, session: 210, node: 200, compile: 280, pipeline: 300, plan: 260, upload: 150, download: 165, submit: 225, calibrate: 0 };
// Operators sorted by time, so that the most important ones have the most different colours.
const ranks = new Map(profile.tables.operators.map((row, rank) => [row.name, rank]));
const colour = (kind, name) => {
  if (kind !== "dispatch") return kind === "calibrate" ? "hsl(0 0% 50%)" : `hsl(${COLOURS[kind] ?? 30} 38% 46%)`;
  return `hsl(${(190 + (ranks.get(name) ?? 99) * 137.5) % 360} 52% 40%)`;
};
const label = (event) => {
  if (event.kind === "dispatch") return event.args.operators || event.name;
  return event.kind === "node" || event.kind === "session" ? event.name : `${event.kind} ${event.name}`;
};

// ---- facts and summary

for (const [name, value] of Object.entries(profile.facts)) {
  const pair = make("div", "", element("facts"));
  make("dt", name, pair);
  make("dd", value, pair);
}
const card = (value, text) => {
  const made = make("div", "", element("summary"), "card");
  make("b", value, made);
  make("span", text, made);
};
const total = profile.summary;
if (total.run !== null) card(time(total.run), `a run (median of ${profile.steady_runs})`);
if (total.first_run !== null) card(time(total.first_run), "the first run, which compiles");
if (total.gpu !== null) {
  card(time(total.gpu), "GPU time per run, each dispatch in a pass of its own");
  card(String(Math.round(total.dispatches * 10) / 10), "dispatches per run");
  const flops = (total.flops / total.gpu) * 1e6, bytes = (total.bytes / total.gpu) * 1e6;
  card(rate(flops, "FLOP/s"), total.peak_flops ? `arithmetic; peak ${rate(total.peak_flops, "FLOP/s")}, ${percent(flops / total.peak_flops)}` : "arithmetic");
  card(rate(bytes, "B/s"), total.peak_bytes ? `memory; peak ${rate(total.peak_bytes, "B/s")}, ${percent(bytes / total.peak_bytes)}` : "memory");
} else card("none", "GPU times: the adapter has no timestamps, or ONNX Runtime before 1.25 wrote the profile");

// ---- a tip beside the pointer

const describe = (event) => [`${event.kind}: ${event.name}`, `${time(event.duration)} from ${time(event.begin)} on`,
  ...Object.entries(event.args).map(([name, value]) => `${name}: ${typeof value === "object" ? JSON.stringify(value) : value}`)];
const showTip = (pointer, lines) => {
  const tip = element("tip");
  tip.replaceChildren();
  for (const line of lines) make("div", line, tip);
  tip.hidden = false;
  const { width, height } = tip.getBoundingClientRect();
  tip.style.left = Math.max(4, Math.min(pointer.clientX + 14, innerWidth - width - 8)) + "px";
  tip.style.top = Math.max(4, pointer.clientY + 16 + height > innerHeight ? pointer.clientY - height - 8 : pointer.clientY + 16) + "px";
};
const hideTip = () => { element("tip").hidden = true; };

// ---- timeline: a track per thread, nested events in lower rows

const ROW = 19, HEAD = 22, AXIS = 24;
const canvas = element("timeline"), draw2d = canvas.getContext("2d");
const tracks = [];
for (const thread of [...new Set(events.map((event) => event.thread))].sort((a, b) => (b === profile.gpu) - (a === profile.gpu) || a - b)) {
  const own = events.filter((event) => event.thread === thread), open = [];
  let rows = 1;
  for (const event of own) {
    // The GPU runs dispatches one after another. They share a row even if rounding makes them overlap.
    while (open.length && (thread === profile.gpu || open[open.length - 1].end <= event.begin + 0.001)) open.pop();
    event.row = open.length;
    open.push(event);
    rows = Math.max(rows, open.length);
  }
  tracks.push({ name: thread === profile.gpu ? "GPU" : `thread ${thread}`, events: own, rows });
}
const last = Math.max(1, ...events.map((event) => event.end));
const steady = events.find((event) => event.kind === "run" && event.begin >= profile.steady);
let from = 0, to = last;
if (steady) [from, to] = [steady.begin - steady.duration * 0.02, steady.end + steady.duration * 0.02];
const x = (at) => ((at - from) / (to - from)) * canvas.clientWidth;
let inView = []; // the tracks with events between `from` and `to`; the others are not drawn

// Cuts a label to a width in pixels in the current font: returns all of it, its beginning, or "" if no word fits.
const LEAST = 36;
const fitting = (text, pixels) => {
  if (pixels < 6) return ""; // no letter fits; this is the case for most events of a long profile
  const whole = draw2d.measureText(text).width;
  if (whole <= pixels) return text;
  if (pixels < LEAST) return "";
  let kept = Math.floor((text.length * pixels) / whole); // letters differ in width
  while (kept > 0 && draw2d.measureText(text.slice(0, kept) + "…").width > pixels) kept--;
  return text.slice(0, kept) + "…";
};

const drawTimeline = () => {
  inView = tracks.filter((track) => track.events.some((event) => event.end >= from && event.begin <= to));
  const width = canvas.clientWidth, height = AXIS + inView.reduce((sum, track) => sum + HEAD + track.rows * ROW, 4);
  const scale = devicePixelRatio || 1;
  canvas.width = width * scale;
  canvas.height = height * scale;
  canvas.style.height = height + "px";
  draw2d.setTransform(scale, 0, 0, scale, 0, 0);
  draw2d.font = "11px system-ui, sans-serif";
  draw2d.textBaseline = "middle";
  const step = 10 ** Math.ceil(Math.log10(((to - from) / width) * 90));
  const tick = [step / 5, step / 2, step].find((size) => (size / (to - from)) * width >= 80) ?? step;
  for (let number = Math.ceil(Math.max(0, from) / tick); number * tick < to; number++) {
    const at = number * tick;
    draw2d.fillStyle = style("--line");
    draw2d.fillRect(x(at), 0, 1, height);
    draw2d.fillStyle = style("--soft");
    draw2d.fillText(placed(at, to, tick), x(at) + 4, AXIS / 2);
  }
  let top = AXIS;
  for (const track of inView) {
    draw2d.fillStyle = style("--soft");
    draw2d.fillText(track.name, 6, top + HEAD / 2);
    top += HEAD;
    let drawn = [];
    for (const event of track.events) {
      const left = Math.max(-2, x(event.begin)), right = Math.min(width + 2, x(event.end));
      if (right < 0 || left > width || (right - left < 1 && left < (drawn[event.row] ?? -1) + 0.7)) continue;
      drawn[event.row] = Math.max(right, left);
      const y = top + event.row * ROW, wide = Math.max(0.8, right - left - 0.5);
      draw2d.fillStyle = colour(event.kind, event.args.operators || event.name);
      draw2d.fillRect(left, y, wide, ROW - 2);
      const text = fitting(label(event), right - Math.max(left, 0) - 8);
      if (text) {
        draw2d.fillStyle = "#fff";
        draw2d.fillText(text, Math.max(left, 0) + 4, y + ROW / 2 - 1);
      }
    }
    top += track.rows * ROW;
  }
};
const under = (pointer) => {
  const box = canvas.getBoundingClientRect(), at = from + ((pointer.clientX - box.left) / box.width) * (to - from);
  const slack = ((to - from) / box.width) * 1.5;
  let top = AXIS;
  for (const track of inView) {
    const row = Math.floor((pointer.clientY - box.top - top - HEAD) / ROW);
    if (row >= 0 && row < track.rows) return track.events.find((event) => event.row === row && event.begin - slack <= at && at <= event.end + slack);
    top += HEAD + track.rows * ROW;
  }
};
const look = (begin, end) => {
  const size = Math.min(Math.max(end - begin, 1), last * 1.1);
  from = Math.min(Math.max(begin, -last * 0.02), last - size * 0.1);
  to = from + size;
  drawTimeline();
};
canvas.addEventListener("wheel", (wheel) => {
  wheel.preventDefault();
  const box = canvas.getBoundingClientRect(), part = (wheel.clientX - box.left) / box.width;
  const factor = Math.exp(wheel.deltaY * 0.0015), at = from + part * (to - from);
  look(at - (at - from) * factor, at + (to - at) * factor);
}, { passive: false });
let grabbed = null;
canvas.addEventListener("pointerdown", (pointer) => { grabbed = { x: pointer.clientX, from, to, moved: false }; canvas.setPointerCapture(pointer.pointerId); });
canvas.addEventListener("pointermove", (pointer) => {
  if (grabbed) {
    const by = ((grabbed.x - pointer.clientX) / canvas.clientWidth) * (grabbed.to - grabbed.from);
    grabbed.moved ||= Math.abs(grabbed.x - pointer.clientX) > 3;
    if (grabbed.moved) look(grabbed.from + by, grabbed.to + by);
    return;
  }
  const event = under(pointer);
  if (event) showTip(pointer, describe(event));
  else hideTip();
});
canvas.addEventListener("pointerup", (pointer) => {
  const event = grabbed && !grabbed.moved ? under(pointer) : null;
  grabbed = null;
  if (event) {
    element("details").hidden = false;
    element("details").textContent = describe(event).join("\n");
  }
});
canvas.addEventListener("pointerleave", hideTip);
canvas.addEventListener("dblclick", () => look(0, last));
canvas.addEventListener("keydown", (key) => {
  const size = to - from, moves = { ArrowLeft: [-0.2, -0.2], ArrowRight: [0.2, 0.2], "+": [0.2, -0.2], "-": [-0.3, 0.3] };
  if (key.key === "0") look(0, last);
  else if (moves[key.key]) look(from + moves[key.key][0] * size, to + moves[key.key][1] * size);
  else return;
  key.preventDefault();
});

// ---- flame view: GPU time by operator, kernel, node

const root = { name: "all", time: 0, calls: 0, parts: new Map(), parent: null };
for (const event of events) {
  if (event.kind !== "dispatch" || event.begin < profile.steady) continue;
  let place = root;
  place.time += event.duration;
  place.calls++;
  for (const name of [event.args.operators || event.name, event.args.kernel || event.name, event.args.nodes || event.name]) {
    if (!place.parts.has(name)) place.parts.set(name, { name, time: 0, calls: 0, parts: new Map(), parent: place });
    place = place.parts.get(name);
    place.time += event.duration;
    place.calls++;
  }
}
let flameTop = root;
const drawFlame = (top) => {
  const flame = element("flame"), pixels = flame.clientWidth;
  flameTop = top;
  flame.replaceChildren();
  draw2d.font = "12px system-ui, sans-serif"; // of the boxes
  let depth = 0;
  const add = (place, left, width, row, operator) => {
    if (width < 0.0008) return;
    depth = Math.max(depth, row + 1);
    const shown = fitting(place.name, width * pixels - 15), button = make("button", shown, flame, shown ? "" : "bare");
    button.ariaLabel = place.name;
    Object.assign(button.style, { left: left * 100 + "%", width: width * 100 + "%", top: row * 22 + "px", background: operator ? colour("dispatch", operator) : "hsl(215 12% 45%)" });
    const lines = [place.name, `${time(place.time / profile.steady_runs)} per run, ${percent(place.time / root.time)}`, `${Math.round((place.calls / profile.steady_runs) * 10) / 10} dispatches per run`];
    button.title = lines.join("\n");
    button.onclick = () => drawFlame(place === top && top.parent ? top.parent : place);
    let at = left;
    for (const part of [...place.parts.values()].sort((a, b) => b.time - a.time)) {
      const share = (part.time / place.time) * width;
      add(part, at, share, row + 1, operator ?? part.name);
      at += share;
    }
  };
  const operator = (place) => (!place.parent ? null : !place.parent.parent ? place.name : operator(place.parent));
  if (root.time) add(top, 0, 1, 0, operator(top));
  else make("p", "no GPU times", flame, "hint");
  flame.style.height = Math.max(1, depth) * 22 + "px";
};

// ---- tables

const COLUMNS = [
  ["name", "", (row) => row.name], ["where", "on", (row) => row.where], ["calls", "calls", (row) => String(Math.round(row.calls * 10) / 10)],
  ["time", "time", (row) => time(row.time)], ["share", "of GPU time", (row) => (row.where === "GPU" ? percent(row.share) : "")],
  ["flops", "FLOP/s", (row) => (row.flops ? rate(row.flops, "") : "")], ["bytes", "B/s", (row) => (row.bytes ? rate(row.bytes, "") : "")],
  ["of_peak", "of peak", (row) => (row.of_peak === null ? "" : percent(row.of_peak) + (row.of_peak >= 1.005 ? "*" : ""))], ["bound", "bound by", (row) => row.bound], ["shapes", "shapes", (row) => row.shapes],
];
const ONE = { operators: "operator", kernels: "kernel", dispatches: "dispatch" };
const TEXT = new Set(["name", "where", "bound", "shapes"]);
let shown = "operators", order = "time", falling = true;
const drawTable = () => {
  const table = element("table");
  table.replaceChildren();
  const head = make("tr", "", make("thead", "", table));
  for (const [key, title] of COLUMNS) {
    const cell = make("th", (key === "name" ? ONE[shown] : title) + (key === order ? (falling ? " ▾" : " ▴") : ""), head, TEXT.has(key) ? "text" : "");
    cell.tabIndex = 0;
    cell.onclick = () => { falling = key === order ? !falling : !TEXT.has(key); order = key; drawTable(); };
    cell.onkeydown = (pressed) => { if (pressed.key === "Enter") cell.onclick(); };
  }
  const compare = (a, b) => (TEXT.has(order) ? String(a[order]).localeCompare(b[order]) : (a[order] ?? -1) - (b[order] ?? -1));
  const body = make("tbody", "", table);
  for (const row of [...profile.tables[shown]].sort((a, b) => (falling ? compare(b, a) : compare(a, b)))) {
    const line = make("tr", "", body);
    for (const [key, , text] of COLUMNS) {
      const cell = make("td", text(row), line, TEXT.has(key) ? "text" : key === "share" ? "share" : "");
      if (key === "share") cell.style.setProperty("--part", percent(row.share));
      if (TEXT.has(key)) cell.title = text(row);
    }
  }
  for (const button of element("tabs").children) button.setAttribute("aria-pressed", String(button.textContent === shown));
};
for (const name of Object.keys(profile.tables)) make("button", name, element("tabs")).onclick = () => { shown = name; drawTable(); };
element("legend").textContent = "Times per run, without the first. FLOP/s: arithmetic that the operators ask for (0 where it is not counted). B/s: bytes of the tensors read and written, each once."
  + (total.peak_flops ? ` Peak, measured on this adapter by a loop of multiply-adds in f32 and by a copy: ${rate(total.peak_flops, "FLOP/s")}, ${rate(total.peak_bytes, "B/s")}. * ${profile.beyond}.` : "");

drawTimeline();
drawFlame(root);
drawTable();
addEventListener("resize", () => { drawTimeline(); drawFlame(flameTop); });
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawTimeline);
