"use strict";
// All data are in the JSON of this page: arrays of 16-bit numbers in base64, one number per cell. 65535 means missing.
const variables = JSON.parse(document.getElementById("page-data").textContent).variables;
const MISSING = 65535;
const byId = (id) => document.getElementById(id);
const state = { variable: 0, slice: 0, time: 0, place: null, layer: "filled" };

function decodeArray(text) {
  const raw = atob(text), bytes = new Uint8Array(raw.length);
  for (let i = 0; i < raw.length; i++) bytes[i] = raw.charCodeAt(i);
  return new Uint16Array(bytes.buffer);
}
// The places of a grid are the product of its axes.
function gridPlaces(grid) {
  const [slow, fast] = grid.yFirst ? [grid.y, grid.x] : [grid.x, grid.y];
  return slow.flatMap((a) => fast.map((b) => (grid.yFirst ? { x: b, y: a } : { x: a, y: b })));
}
for (const v of variables) {
  v.places = v.places || gridPlaces(v.grid);
  v.cells = decodeArray(v.values);
  v.errors = decodeArray(v.std);
  v.flags = decodeArray(v.filled);
}
const current = () => variables[state.variable];
const cell = (v, place, time) => (state.slice * v.places.length + place) * v.times.length + time;
const decode = (code, range) => (code === MISSING ? NaN : range[0] + (code / 65534) * (range[1] - range[0]));
const value = (v, i) => decode(v.cells[i], v.range);
const error = (v, i) => decode(v.errors[i], v.errorRange);
const wasFilled = (v, i) => v.flags[i] === 1;
const isSingle = (v) => v.times.length < 2;
function label(v, place) {
  if (!v.grid) return place.label;
  const short = (x) => String(Number(x.toPrecision(6)));
  return `${v.grid.names[1]} ${short(place.y)}, ${v.grid.names[0]} ${short(place.x)}`;
}

// Colours: a few points of a perceptually uniform scale, with linear interpolation between them.
const SCALES = {
  value: [[68, 1, 84], [59, 82, 139], [33, 145, 140], [94, 201, 98], [253, 231, 37]],
  error: [[255, 247, 236], [253, 212, 158], [252, 141, 89], [215, 48, 31], [127, 0, 0]],
};
function colour(scale, share) {
  const points = SCALES[scale], x = Math.min(Math.max(share, 0), 1) * (points.length - 1);
  const i = Math.min(Math.floor(x), points.length - 2), f = x - i;
  return "rgb(" + points[i].map((a, k) => Math.round(a + f * (points[i + 1][k] - a))).join(",") + ")";
}
function layerValue(v, i, layer) {
  if (layer === "std") return error(v, i);
  return layer === "data" && wasFilled(v, i) ? NaN : value(v, i);
}
const layerLimits = (v, layer) => (layer === "std" ? v.errorLimits : v.limits);
const layerScale = (layer) => (layer === "std" ? "error" : "value");
// Where the data are: observed, filled or missing.
const WHERE = { observed: "#2b4c7e", filled: "#f2b264", missing: "#e4e7eb" };
const whereIs = (v, i) => (Number.isNaN(value(v, i)) ? "missing" : wasFilled(v, i) ? "filled" : "observed");
function formatNumber(x, range) {
  const digits = Math.max(0, 2 - Math.floor(Math.log10(Math.max(Math.abs(range[1] - range[0]), 1e-12))));
  return x.toFixed(Math.min(digits, 8));
}

// The map: one rectangle or dot per place, at its coordinates.
const map = byId("map"), MARGIN = { left: 62, right: 12, top: 12, bottom: 34 };
// Axes of the same units are drawn to the same scale, unless the map were more oblong than this.
const MOST_OBLONG = 5;
function extent(v) {
  const w = v.cellSize[0] / 2, h = v.cellSize[1] / 2, box = [Infinity, -Infinity, Infinity, -Infinity];
  for (const p of v.places) {
    box[0] = Math.min(box[0], p.x - w);
    box[1] = Math.max(box[1], p.x + w);
    box[2] = Math.min(box[2], p.y - h);
    box[3] = Math.max(box[3], p.y + h);
  }
  // The length of a unit of x in units of y; a degree of longitude is shorter than one of latitude. Null if free.
  let unit = null;
  if (v.onEarth) unit = Math.max(Math.cos(((box[2] + box[3]) / 2) * Math.PI / 180), 0.2);
  const oblong = (box[1] - box[0]) / (box[3] - box[2] || 1);
  if (v.sameScale && oblong < MOST_OBLONG && oblong > 1 / MOST_OBLONG) unit = 1;
  return { box, unit };
}
for (const v of variables) v.extent = extent(v);
function projection(v, canvas = map) {
  const { box, unit } = v.extent;
  const width = canvas.width - MARGIN.left - MARGIN.right, height = canvas.height - MARGIN.top - MARGIN.bottom;
  let sx = width / (box[1] - box[0] || 1), sy = height / (box[3] - box[2] || 1);
  if (unit !== null) {
    const s = Math.min(sx / unit, sy);
    sx = s * unit;
    sy = s;
  }
  const left = MARGIN.left + (width - sx * (box[1] - box[0])) / 2;
  const top = MARGIN.top + (height - sy * (box[3] - box[2])) / 2;
  return { box, sx, sy, x: (x) => left + (x - box[0]) * sx, y: (y) => top + (box[3] - y) * sy };
}
// A canvas as wide as its figure, and as high as the map then is.
function fitCanvas(v, canvas) {
  const { box, unit } = v.extent, width = Math.min(Math.max(canvas.parentElement.clientWidth, 280), 760);
  const share = unit === null ? 0.7 : (box[3] - box[2]) / ((box[1] - box[0]) * unit || 1);
  const inside = (width - MARGIN.left - MARGIN.right) * share;
  canvas.width = width;
  canvas.height = Math.min(Math.max(inside, 90), 1.3 * width) + MARGIN.top + MARGIN.bottom;
}
function ticks(low, high, count) {
  const raw = (high - low) / count || 1, power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= raw);
  const found = [];
  for (let t = Math.ceil(low / step) * step; t <= high + step * 1e-9; t += step) found.push(t);
  return { at: found, digits: Math.max(0, -Math.floor(Math.log10(step))) };
}
function cellColour(v, i, layer) {
  if (layer === "where") return WHERE[whereIs(v, i)];
  const number = layerValue(v, i, layer), limits = layerLimits(v, layer);
  if (Number.isNaN(number)) return WHERE.missing;
  return colour(layerScale(layer), (number - limits[0]) / (limits[1] - limits[0] || 1));
}
function drawMap(canvas, legend, layer) {
  const v = current(), c = canvas.getContext("2d"), p = projection(v, canvas);
  c.clearRect(0, 0, canvas.width, canvas.height);
  const w = Math.max(v.cellSize[0] * p.sx, 1), h = Math.max(v.cellSize[1] * p.sy, 1);
  v.places.forEach((place, k) => {
    const x = p.x(place.x), y = p.y(place.y);
    c.fillStyle = cellColour(v, cell(v, k, state.time), layer);
    if (v.dots) {
      c.beginPath();
      c.arc(x, y, 7, 0, 2 * Math.PI);
      c.fill();
      c.strokeStyle = "#8a94a3";
      c.stroke();
    } else {
      // Whole pixels, so that no seams are seen between cells.
      const left = Math.round(x - w / 2), top = Math.round(y - h / 2);
      c.fillRect(left, top, Math.max(Math.round(x + w / 2) - left, 1), Math.max(Math.round(y + h / 2) - top, 1));
    }
  });
  if (state.place !== null) {
    const place = v.places[state.place];
    c.strokeStyle = "#d1105a";
    c.lineWidth = 2.5;
    const frame = [Math.max(w, 12), Math.max(h, 12)];
    c.strokeRect(p.x(place.x) - frame[0] / 2, p.y(place.y) - frame[1] / 2, ...frame);
    c.lineWidth = 1;
  }
  if (v.axes) drawAxes(v, c, p);
  if (layer === "where") drawKey(legend);
  else drawLegend(legend, layer);
}
function drawAxes(v, c, p) {
  c.fillStyle = "#5b6675";
  c.font = "12px system-ui, sans-serif";
  c.textAlign = "center";
  const across = Math.min(6, Math.max(2, Math.floor((p.x(p.box[1]) - p.x(p.box[0])) / 70)));
  const tx = ticks(p.box[0], p.box[1], across), ty = ticks(p.box[2], p.box[3], 6);
  tx.at.forEach((t) => c.fillText(t.toFixed(tx.digits), p.x(t), p.y(p.box[2]) + 15));
  c.textAlign = "right";
  ty.at.forEach((t) => c.fillText(t.toFixed(ty.digits), p.x(p.box[0]) - 6, p.y(t) + 4));
  c.textAlign = "center";
  c.fillText(v.axes[0], (p.x(p.box[0]) + p.x(p.box[1])) / 2, p.y(p.box[2]) + 30);
  c.save();
  c.translate(p.x(p.box[0]) - 50, (p.y(p.box[2]) + p.y(p.box[3])) / 2);
  c.rotate(-Math.PI / 2);
  c.fillText(v.axes[1], 0, 0);
  c.restore();
}
function drawLegend(legend, layer) {
  const c = legend.getContext("2d"), v = current(), limits = layerLimits(v, layer);
  const [below, above] = layer === "std" ? v.errorBeyond : v.beyond;
  c.clearRect(0, 0, legend.width, legend.height);
  const left = MARGIN.left, width = legend.width - left - MARGIN.right - 0.15 * legend.width;
  for (let i = 0; i < width; i++) {
    c.fillStyle = colour(layerScale(layer), i / width);
    c.fillRect(left + i, 2, 1.5, 14);
  }
  c.fillStyle = "#5b6675";
  c.font = "12px system-ui, sans-serif";
  c.textAlign = "center";
  for (let k = 0; k <= 4; k++) {
    const text = formatNumber(limits[0] + (k / 4) * (limits[1] - limits[0]), limits);
    // Beyond its ends the scale goes on with the same colour.
    const sign = k === 0 && below ? "≤ " : k === 4 && above ? "≥ " : "";
    c.fillText(sign + text, left + (k / 4) * width, 31);
  }
  c.textAlign = "left";
  c.fillText(v.units || "", left + width + 12, 14);
}
function drawKey(legend) {
  const c = legend.getContext("2d"), v = current(), counts = { observed: 0, filled: 0, missing: 0 };
  c.clearRect(0, 0, legend.width, legend.height);
  v.places.forEach((_, k) => { counts[whereIs(v, cell(v, k, state.time))] += 1; });
  c.font = "12px system-ui, sans-serif";
  c.textAlign = "left";
  let left = MARGIN.left;
  for (const name of Object.keys(WHERE).filter((key) => counts[key])) {
    c.fillStyle = WHERE[name];
    c.fillRect(left, 4, 14, 14);
    const text = `${name} ${((100 * counts[name]) / v.places.length).toFixed(1)} %`;
    c.fillStyle = "#5b6675";
    c.fillText(text, left + 19, 15);
    left += 19 + c.measureText(text).width + 18;
  }
}
// What is known about one cell, with the digits that the error bar warrants.
function describeCell(v, i) {
  if (Number.isNaN(value(v, i))) return "missing";
  const number = formatNumber(value(v, i), v.errorRange), spread = formatNumber(error(v, i), v.errorRange);
  return `${number} ± ${spread} ${v.units}`.trimEnd() + `, ${wasFilled(v, i) ? "filled" : "observed"}`;
}
function drawSingle() {
  const v = current();
  for (const layer of ["filled", "std", "where"]) {
    const canvas = byId("map-" + layer), legend = byId("legend-" + layer);
    fitCanvas(v, canvas);
    legend.width = canvas.width;
    legend.height = 38;
    drawMap(canvas, legend, layer);
  }
  byId("reading").textContent = state.place === null
    ? "Click a cell to read its value."
    : `${label(v, v.places[state.place])}: ${describeCell(v, cell(v, state.place, state.time))}`;
}

// The time series at one place: observed values, the filled field, and a band of two standard errors on either side.
const SERIES_CAPTION = "Dots are observed values; the line is the filled field, with a band of two standard errors " +
  "on either side.";
function drawSeries() {
  const v = current(), canvas = byId("series"), c = canvas.getContext("2d");
  c.clearRect(0, 0, canvas.width, canvas.height);
  if (state.place === null) return;
  const n = v.times.length, index = Array.from({ length: n }, (_, t) => cell(v, state.place, t));
  const mean = index.map((i) => value(v, i)), half = index.map((i) => 2 * error(v, i));
  byId("place").textContent = label(v, v.places[state.place]);
  const low = Math.min(...mean.map((m, t) => (Number.isNaN(m) ? Infinity : m - (half[t] || 0))));
  const high = Math.max(...mean.map((m, t) => (Number.isNaN(m) ? -Infinity : m + (half[t] || 0))));
  if (!Number.isFinite(low)) {
    c.fillStyle = "#5b6675";
    c.font = "14px system-ui, sans-serif";
    c.fillText("No value was observed at this place, and it was not filled.", 60, 60);
    return;
  }
  const left = 62, right = canvas.width - 12, top = 12, bottom = canvas.height - 34;
  const x = (t) => left + (n > 1 ? v.positions[t] : 0.5) * (right - left);
  const y = (m) => bottom - ((m - low) / (high - low || 1)) * (bottom - top);
  c.font = "12px system-ui, sans-serif";
  const ty = ticks(low, high, 5);
  ty.at.forEach((t) => {
    c.strokeStyle = "#e8ebef";
    c.beginPath();
    c.moveTo(left, y(t));
    c.lineTo(right, y(t));
    c.stroke();
    c.fillStyle = "#5b6675";
    c.textAlign = "right";
    c.fillText(t.toFixed(ty.digits), left - 6, y(t) + 4);
  });
  c.textAlign = "center";
  const every = Math.max(1, Math.ceil(n / 5));
  for (let t = Math.floor(every / 2); t < n; t += every) {
    c.fillText(v.times[t], Math.min(x(t), canvas.width - 56), bottom + 18);
  }
  c.fillStyle = "#b9d7e3";
  for (let t = 0; t + 1 < n; t++) {
    if (Number.isNaN(mean[t]) || Number.isNaN(mean[t + 1])) continue;
    c.beginPath();
    c.moveTo(x(t), y(mean[t] - half[t]));
    c.lineTo(x(t + 1), y(mean[t + 1] - half[t + 1]));
    c.lineTo(x(t + 1), y(mean[t + 1] + half[t + 1]));
    c.lineTo(x(t), y(mean[t] + half[t]));
    c.fill();
  }
  c.strokeStyle = "#1f6f8b";
  c.beginPath();
  let down = false;
  mean.forEach((m, t) => {
    if (Number.isNaN(m)) down = false;
    else if (down) c.lineTo(x(t), y(m));
    else { c.moveTo(x(t), y(m)); down = true; }
  });
  c.stroke();
  c.fillStyle = "#1c2430";
  index.forEach((i, t) => {
    if (wasFilled(v, i) || Number.isNaN(mean[t])) return;
    c.beginPath();
    c.arc(x(t), y(mean[t]), n > 300 ? 1.3 : 2.4, 0, 2 * Math.PI);
    c.fill();
  });
  c.strokeStyle = "#d1105a";
  c.beginPath();
  c.moveTo(x(state.time), top);
  c.lineTo(x(state.time), bottom);
  c.stroke();
  const text = describeCell(v, index[state.time]);
  const when = v.times[state.time] ? `At ${v.times[state.time]}: ` : "";
  byId("series-caption").textContent = `${when}${text}. ${SERIES_CAPTION}`;
}

function drawValidation() {
  const v = current(), checked = v.validation;
  byId("validation").hidden = !checked;
  if (!checked) return;
  byId("validation-text").textContent = checked.text;
  const table = byId("scores");
  table.replaceChildren();
  const head = table.createTHead().insertRow();
  checked.columns.forEach((name) => {
    const th = document.createElement("th");
    th.textContent = name;
    head.append(th);
  });
  const body = table.createTBody();
  checked.rows.forEach((cells) => {
    const row = body.insertRow();
    cells.forEach((text) => { row.insertCell().textContent = text; });
  });
  drawCalibration(checked.calibration);
}
function drawCalibration(calibration) {
  const canvas = byId("calibration"), c = canvas.getContext("2d");
  const left = 44, bottom = canvas.height - 36, size = bottom - 24;
  c.clearRect(0, 0, canvas.width, canvas.height);
  c.strokeStyle = "#d5dbe3";
  c.strokeRect(left, 24, size, size);
  c.setLineDash([5, 4]);
  c.beginPath();
  c.moveTo(left, bottom);
  c.lineTo(left + size, 24);
  c.stroke();
  c.setLineDash([]);
  c.strokeStyle = "#1f6f8b";
  c.fillStyle = "#1f6f8b";
  c.beginPath();
  c.moveTo(left, bottom);
  calibration.forEach(([p, share]) => c.lineTo(left + p * size, bottom - share * size));
  c.lineTo(left + size, 24);
  c.stroke();
  calibration.forEach(([p, share]) => {
    c.beginPath();
    c.arc(left + p * size, bottom - share * size, 3, 0, 2 * Math.PI);
    c.fill();
  });
  c.fillStyle = "#5b6675";
  c.font = "12px system-ui, sans-serif";
  c.textAlign = "center";
  [0, 0.5, 1].forEach((t) => { c.fillText(`${100 * t} %`, left + t * (size - 6), bottom + 16); });
  c.fillText("probability of the interval", left + size / 2, bottom + 32);
  c.textAlign = "right";
  [0.5, 1].forEach((t) => c.fillText(`${100 * t} %`, left - 5, bottom - t * size + 5));
}

function drawAll() {
  const v = current();
  byId("lead").textContent = v.lead;
  byId("when").textContent = v.times[state.time];
  document.querySelectorAll("[data-layer]").forEach((button) => {
    button.setAttribute("aria-pressed", String(button.dataset.layer === state.layer));
  });
  document.body.dataset.time = state.time;
  document.body.dataset.place = state.place === null ? "" : state.place;
  if (isSingle(v)) drawSingle();
  else {
    drawMap(map, byId("legend"), state.layer);
    drawSeries();
  }
}
function chooseVariable(k) {
  const v = variables[k];
  state.variable = k;
  state.slice = 0;
  state.time = Math.min(state.time, v.times.length - 1);
  state.place = isSingle(v) ? null : v.firstPlace;
  byId("one-map").hidden = byId("reading").hidden = !isSingle(v);
  byId("over-time").hidden = byId("layers").hidden = isSingle(v);
  byId("controls").hidden = isSingle(v) && v.slices.length < 2 && variables.length < 2;
  byId("time").max = v.times.length - 1;
  byId("time").value = state.time;
  byId("time-choice").hidden = v.times.length < 2;
  byId("slice-choice").hidden = v.slices.length < 2;
  byId("slice").replaceChildren(...v.slices.map((name, i) => new Option(name, i)));
  const element = (tag, text) => Object.assign(document.createElement(tag), { textContent: text });
  byId("summary").replaceChildren(...v.summary.map((text) => element("p", text)), element("pre", v.report));
  drawValidation();
  drawAll();
}
function placeAt(event) {
  const canvas = event.currentTarget, v = current(), p = projection(v, canvas), box = canvas.getBoundingClientRect();
  const mx = (event.clientX - box.left) * (canvas.width / box.width);
  const my = (event.clientY - box.top) * (canvas.height / box.height);
  let best = null, least = Infinity;
  v.places.forEach((place, k) => {
    const d = (p.x(place.x) - mx) ** 2 + (p.y(place.y) - my) ** 2;
    if (d < least) { least = d; best = k; }
  });
  return best;
}

byId("variable").append(...variables.map((v, i) => new Option(v.name, i)));
byId("variable-choice").hidden = variables.length < 2;
byId("variable").addEventListener("change", (e) => chooseVariable(Number(e.target.value)));
byId("slice").addEventListener("change", (e) => { state.slice = Number(e.target.value); drawAll(); });
byId("time").addEventListener("input", (e) => { state.time = Number(e.target.value); drawAll(); });
document.querySelectorAll("[data-layer]").forEach((button) => {
  button.addEventListener("click", () => { state.layer = button.dataset.layer; drawAll(); });
});
for (const canvas of [map, ...["filled", "std", "where"].map((layer) => byId("map-" + layer))]) {
  canvas.addEventListener("click", (e) => { state.place = placeAt(e); drawAll(); });
}
window.addEventListener("resize", () => { if (isSingle(current())) drawSingle(); });
let playing = null;
byId("play").addEventListener("click", () => {
  if (playing) { clearInterval(playing); playing = null; byId("play").textContent = "▶"; return; }
  byId("play").textContent = "❚❚";
  playing = setInterval(() => {
    state.time = (state.time + 1) % current().times.length;
    byId("time").value = state.time;
    drawAll();
  }, 120);
});
chooseVariable(0);
