// Time series on a canvas: lines, or stacked areas; a read-out under the pointer or the arrow keys; gaps where a value is
// null. Colours come from the style sheet, so the chart follows light and dark.

import { clear, h } from "./dom.js";
import { time } from "./format.js";
import { paint, themeChanges } from "./palette.js";
import { effect, onDispose, read, scope, signal } from "./signal.js";

/** @typedef {[number, number | null]} Point */
/** @typedef {{name: string, points: Point[]}} Series */

const FONT = "11px system-ui, sans-serif";
const LEVELS = [0, 0.5, 1]; // parts of the scale that have a line
const COLOURS = 8; // --series-0 to --series-7
const BOTTOM_PX = 20;
const TOP_PX = 8;
const RIGHT_PX = 8;

/** The element; `chart()` makes and fills it. */
export class ChartElement extends HTMLElement {}
customElements.define("p-chart", ChartElement);

/**
 * @param {object} options
 * @param {string} options.title
 * @param {Series[] | import("./signal.js").Signal<Series[]> | import("./signal.js").Computed<Series[]>} options.series
 * @param {(n: number) => string} options.format
 * @param {boolean} [options.stacked]
 * @param {number} [options.height]
 * @param {[number, number] | import("./signal.js").Computed<[number, number]>} [options.range] first and last moment; of the points by default
 * @param {number} [options.max] the scale reaches at least this value
 * @returns {HTMLElement}
 */
export function chart(options) {
  const { title, format, stacked = false, height = 160 } = options;
  const hidden = signal(/** @type {Set<string>} */ (new Set()));
  const at = signal(/** @type {number | null} */ (null)); // the moment that is read out
  const isBinary = /[KMG]B/.test(format(1024 ** 3));
  const canvas = h("canvas", { tabIndex: 0, role: "img", aria: { label: title } });
  const legend = h("div", { class: "chart-legend" });
  const moment = h("span", { class: "chart-time", aria: { live: "polite" } });
  const nothing = h("div", { class: "chart-none", hidden: true }, "No data yet");
  const host = h(
    "p-chart",
    null,
    h("div", { class: "chart-head" }, h("span", { class: "chart-title" }, title), moment),
    h("div", { class: "chart-area", style: { height: `${height}px` } }, canvas, nothing),
    legend,
  );
  /** @type {Series[]} */
  let series = [];
  let frame = 0;
  let left = 40; // where the area begins, after the widest label
  let legendOf = "\0"; // the names that the legend has now
  let endLegend = () => {};

  const visible = () => series.filter((each) => !hidden.peek().has(each.name));
  const ask = () => {
    if (!frame) frame = requestAnimationFrame(draw);
  };

  function span() {
    const given = options.range === undefined ? null : /** @type {[number, number]} */ (read(/** @type {any} */ (options.range)));
    if (given) return given;
    let first = Infinity;
    let last = -Infinity;
    for (const { points } of series) {
      if (!points.length) continue;
      first = Math.min(first, points[0][0]);
      last = Math.max(last, points[points.length - 1][0]);
    }
    return /** @type {[number, number]} */ ([first, last > first ? last : first + 1000]);
  }

  function draw() {
    frame = 0;
    const width = canvas.clientWidth;
    if (!width) return;
    const ratio = window.devicePixelRatio || 1;
    if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
      canvas.width = Math.round(width * ratio);
      canvas.height = Math.round(height * ratio);
    }
    const pen = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.clearRect(0, 0, width, height);
    const [first, last] = span();
    const isEmpty = !Number.isFinite(first) || !series.some((each) => each.points.some(([, value]) => value !== null));
    nothing.hidden = !isEmpty;
    if (isEmpty) return;
    const lines = layers(visible(), stacked);
    const top = niceMax(Math.max(options.max ?? 0, ...lines.map((each) => each.max)), isBinary ? 1024 : 1000);
    pen.font = FONT;
    left = Math.ceil(Math.max(...LEVELS.map((part) => pen.measureText(format(top * part)).width))) + 10;
    const x = (/** @type {number} */ ms) => left + ((ms - first) / (last - first)) * (width - left - RIGHT_PX);
    const y = (/** @type {number} */ value) => TOP_PX + (1 - value / top) * (height - TOP_PX - BOTTOM_PX);
    drawAxes(pen, { left, width, height, first, last, top, x, y, format });
    pen.save();
    pen.beginPath();
    pen.rect(left, 0, width - left - RIGHT_PX + 2, height - BOTTOM_PX + 2);
    pen.clip();
    for (const line of lines) drawLine(pen, line, colour(series.findIndex((each) => each.name === line.name)), stacked, x, y);
    const now = at.peek();
    if (now !== null) {
      pen.strokeStyle = paint("--text-3");
      pen.lineWidth = 1;
      pen.beginPath();
      pen.moveTo(Math.round(x(now)) + 0.5, 0);
      pen.lineTo(Math.round(x(now)) + 0.5, height);
      pen.stroke();
    }
    pen.restore();
  }

  function drawLegend() {
    const names = series.map((each) => each.name).join("\n");
    if (names !== legendOf) {
      legendOf = names;
      endLegend();
      clear(legend);
      [, endLegend] = scope(() => legend.append(...(series.length > 1 || series[0]?.name ? series.map(entry) : [h("b")])));
    }
    const now = at.peek();
    const values = legend.querySelectorAll("b");
    series.forEach((each, index) => {
      const value = now === null ? lastOf(each.points) : nearest(each.points, now)?.[1];
      if (values[index]) values[index].textContent = value === null || value === undefined ? "–" : format(value);
    });
    moment.textContent = now === null ? "" : time(now).slice(11, 19);
  }

  /** @param {Series} of @param {number} index */
  function entry(of, index) {
    return h(
      "button",
      {
        type: "button",
        title: of.name,
        aria: { pressed: () => String(!hidden.value.has(of.name)) },
        on: { click: () => hidden.update((now) => toggled(now, of.name)) },
      },
      h("i", { class: `series-${index % COLOURS}` }),
      h("span", null, of.name),
      h("b"),
    );
  }

  /** @param {PointerEvent | MouseEvent} event */
  function pointed(event) {
    const [first, last] = span();
    const box = canvas.getBoundingClientRect();
    const part = (event.clientX - box.left - left) / (box.width - left - RIGHT_PX);
    const wanted = first + Math.min(1, Math.max(0, part)) * (last - first);
    at.set(closest(series, wanted));
  }

  /** @param {KeyboardEvent} event */
  function keyPressed(event) {
    const moments = series.reduce((best, each) => (each.points.length > best.length ? each.points : best), /** @type {Point[]} */ ([]));
    if (!moments.length) return;
    const now = at.peek();
    const index = now === null ? moments.length : moments.findIndex(([ms]) => ms >= now);
    if (event.key === "ArrowLeft") at.set(moments[Math.max(0, index - 1)][0]);
    else if (event.key === "ArrowRight") at.set(moments[Math.min(moments.length - 1, index + 1)][0]);
    else if (event.key === "Escape") at.set(null);
    else return;
    event.preventDefault();
  }

  canvas.addEventListener("pointermove", pointed);
  canvas.addEventListener("pointerleave", () => at.set(null));
  canvas.addEventListener("blur", () => at.set(null));
  canvas.addEventListener("keydown", keyPressed);
  effect(() => {
    series = read(/** @type {any} */ (options.series)) ?? [];
    if (options.range) read(/** @type {any} */ (options.range));
    hidden.value;
    themeChanges.value;
    at.value;
    drawLegend();
    ask();
  });
  const observer = new ResizeObserver(ask);
  observer.observe(canvas);
  onDispose(() => {
    observer.disconnect();
    endLegend();
    cancelAnimationFrame(frame);
  });
  return host;
}

/**
 * A small line without axes.
 * @param {(number | null)[]} values
 * @param {{label?: string}} [more]
 * @returns {HTMLElement}
 */
export function sparkline(values, more = {}) {
  const width = 96;
  const height = 20;
  const canvas = h("canvas", { class: "sparkline", role: "img", aria: { label: more.label ?? "Course over time" }, width: width * 2, height: height * 2 });
  requestAnimationFrame(() => {
    const pen = canvas.getContext("2d");
    if (!pen) return;
    pen.scale(2, 2);
    pen.strokeStyle = colour(0);
    pen.lineWidth = 1.2;
    const top = Math.max(...values.map((each) => each ?? 0)) || 1;
    pen.beginPath();
    let isOpen = false;
    values.forEach((value, index) => {
      if (value === null) {
        isOpen = false;
        return;
      }
      const x = (index / Math.max(1, values.length - 1)) * (width - 2) + 1;
      const y = height - 1.5 - (value / top) * (height - 3);
      if (isOpen) pen.lineTo(x, y);
      else pen.moveTo(x, y);
      isOpen = true;
    });
    pen.stroke();
  });
  return canvas;
}

/** @param {number} index */
function colour(index) {
  return paint(`--series-${index % COLOURS}`);
}

/** @typedef {{name: string, points: [number, number | null, number][], max: number}} Layer moment, value on the scale, base */

/**
 * @param {Series[]} series
 * @param {boolean} stacked
 * @returns {Layer[]}
 */
function layers(series, stacked) {
  /** @type {Map<number, number>} */
  const sums = new Map();
  return series.map(({ name, points }) => {
    let max = 0;
    const placed = points.map(([ms, value]) => {
      const base = stacked ? (sums.get(ms) ?? 0) : 0;
      const top = value === null ? null : base + value;
      if (stacked && top !== null) sums.set(ms, top);
      if (top !== null && top > max) max = top;
      return /** @type {[number, number | null, number]} */ ([ms, top, base]);
    });
    return { name, points: placed, max };
  });
}

/**
 * The next of 1, 2, 2.5, 5, 10 … in units of 1,000, or of 1,024 for bytes.
 * @param {number} value
 * @param {number} unit
 */
function niceMax(value, unit) {
  if (!(value > 0)) return 1;
  const whole = value < 1 ? 1 : unit ** Math.floor(Math.log(value) / Math.log(unit));
  const size = 10 ** Math.floor(Math.log10(value / whole));
  const found = ([1, 2, 2.5, 5, 10].find((step) => step * size * whole >= value) ?? 10) * size;
  return found === 1000 ? whole * unit : found * whole;
}

/**
 * @param {CanvasRenderingContext2D} pen
 * @param {{left: number, width: number, height: number, first: number, last: number, top: number, x: (ms: number) => number, y: (value: number) => number, format: (n: number) => string}} scale
 */
function drawAxes(pen, { left, width, height, first, last, top, x, y, format }) {
  pen.fillStyle = paint("--text-2");
  pen.strokeStyle = paint("--line");
  pen.lineWidth = 1;
  pen.textAlign = "right";
  pen.textBaseline = "middle";
  for (const part of LEVELS) {
    const level = Math.round(y(top * part)) + 0.5;
    pen.beginPath();
    pen.moveTo(left, level);
    pen.lineTo(width - RIGHT_PX, level);
    pen.stroke();
    pen.fillText(format(top * part), left - 8, level);
  }
  pen.textBaseline = "alphabetic";
  const steps = Math.max(1, Math.min(6, Math.floor((width - left) / 110)));
  for (let step = 0; step <= steps; step++) {
    const ms = first + ((last - first) * step) / steps;
    pen.textAlign = step === 0 ? "left" : step === steps ? "right" : "center";
    pen.fillText(time(ms).slice(11, last - first < 600_000 ? 19 : 16), x(ms), height - 4);
  }
}

/**
 * @param {CanvasRenderingContext2D} pen
 * @param {Layer} line
 * @param {string} paint
 * @param {boolean} filled
 * @param {(ms: number) => number} x
 * @param {(value: number) => number} y
 */
function drawLine(pen, line, paint, filled, x, y) {
  pen.strokeStyle = paint;
  pen.fillStyle = paint;
  pen.lineWidth = 1.5;
  pen.lineJoin = "round";
  /** @type {[number, number, number][]} */
  let run = [];
  const flush = () => {
    if (run.length === 1) pen.fillRect(x(run[0][0]) - 1.5, y(run[0][1]) - 1.5, 3, 3);
    if (run.length > 1) {
      pen.beginPath();
      run.forEach(([ms, value], index) => (index ? pen.lineTo(x(ms), y(value)) : pen.moveTo(x(ms), y(value))));
      pen.stroke();
      for (const [ms, , base] of [...run].reverse()) pen.lineTo(x(ms), y(base));
      pen.globalAlpha = filled ? 0.35 : 0.08;
      pen.fill();
      pen.globalAlpha = 1;
    }
    run = [];
  };
  for (const [ms, value, base] of line.points) {
    if (value === null) flush();
    else run.push([ms, value, base]);
  }
  flush();
}

/** @param {Point[]} points */
function lastOf(points) {
  return points.length ? points[points.length - 1][1] : null;
}

/** @param {Point[]} points @param {number} ms @returns {Point | null} */
function nearest(points, ms) {
  let low = 0;
  let high = points.length - 1;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (points[middle][0] < ms) low = middle + 1;
    else high = middle;
  }
  const after = points[low];
  const before = points[low - 1];
  if (!after) return null;
  return before && ms - before[0] < after[0] - ms ? before : after;
}

/** @param {Series[]} series @param {number} ms */
function closest(series, ms) {
  let best = /** @type {number | null} */ (null);
  for (const { points } of series) {
    const found = nearest(points, ms);
    if (found && (best === null || Math.abs(found[0] - ms) < Math.abs(best - ms))) best = found[0];
  }
  return best;
}

/** @param {Set<string>} set @param {string} name */
function toggled(set, name) {
  const next = new Set(set);
  if (!next.delete(name)) next.add(name);
  return next;
}
