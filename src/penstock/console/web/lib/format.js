// Numbers, sizes and times for people.

const whole = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });
const BYTE_UNITS = ["B", "KB", "MB", "GB", "TB", "PB"];
const NONE = "–";

/** @typedef {number | null | undefined} Maybe */

/**
 * 1,234,567
 * @param {Maybe} n
 */
export function count(n) {
  return known(n) ? whole.format(n) : NONE;
}

/**
 * 1.2 M
 * @param {Maybe} n
 */
export function compact(n) {
  if (!known(n)) return NONE;
  for (const [size, unit] of /** @type {[number, string][]} */ ([[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e4, "k"]])) {
    if (Math.abs(n) >= size * 0.9995) return `${short(n / (unit === "k" ? 1e3 : size))} ${unit}`;
  }
  return Number.isInteger(n) || Math.abs(n) >= 100 ? whole.format(n) : short(n);
}

/**
 * 3.4 MB: units of 1,024, as the settings of a broker have them
 * @param {Maybe} n
 */
export function bytes(n) {
  if (!known(n)) return NONE;
  let at = 0;
  let size = n;
  while (Math.abs(size) >= 1023.5 && at < BYTE_UNITS.length - 1) {
    size /= 1024;
    at += 1;
  }
  return `${at === 0 ? whole.format(size) : short(size)} ${BYTE_UNITS[at]}`;
}

/**
 * "1.2 k/s"; with the unit "bytes": "3.4 MB/s"
 * @param {Maybe} n
 * @param {string} [unit]
 */
export function rate(n, unit = "") {
  if (!known(n)) return NONE;
  if (unit === "bytes") return `${bytes(n)}/s`;
  return unit ? `${compact(n)} ${unit}/s` : `${compact(n)}/s`;
}

/**
 * 3 min 4 s: the two largest units
 * @param {Maybe} ms
 */
export function duration(ms) {
  if (!known(ms)) return NONE;
  const sign = ms < 0 ? "−" : "";
  const left = Math.abs(ms);
  if (left === 0) return "0 s";
  if (left < 1) return `${sign}${short(left)} ms`;
  if (left < 1000) return `${sign}${Math.round(left)} ms`;
  if (left < 10_000) return `${sign}${short(left / 1000)} s`;
  const seconds = Math.round(left / 1000);
  const parts = /** @type {[number, string][]} */ ([
    [Math.floor(seconds / 86_400), "d"],
    [Math.floor(seconds / 3600) % 24, "h"],
    [Math.floor(seconds / 60) % 60, "min"],
    [seconds % 60, "s"],
  ]);
  const first = parts.findIndex(([size]) => size > 0);
  return sign + parts.slice(first, first + 2).filter(([size]) => size > 0).map(([size, unit]) => `${size} ${unit}`).join(" ");
}

/**
 * 5 min ago
 * @param {Maybe} ms since 1970
 * @param {number} [now]
 */
export function ago(ms, now = Date.now()) {
  if (!known(ms) || ms < 0) return NONE;
  const left = now - ms;
  if (Math.abs(left) < 1500) return "now";
  const shown = duration(Math.round(Math.abs(left) / 1000) * 1000).split(" ").slice(0, 2).join(" ");
  return left < 0 ? `in ${shown}` : `${shown} ago`;
}

/**
 * 2026-11-18 14:03:22.123, in the zone of the reader
 * @param {Maybe} ms since 1970
 */
export function time(ms) {
  if (!known(ms) || ms < 0) return NONE;
  const then = new Date(ms);
  if (Number.isNaN(then.getTime())) return NONE;
  const two = (/** @type {number} */ n) => String(n).padStart(2, "0");
  const date = `${then.getFullYear()}-${two(then.getMonth() + 1)}-${two(then.getDate())}`;
  const clock = `${two(then.getHours())}:${two(then.getMinutes())}:${two(then.getSeconds())}`;
  return `${date} ${clock}.${String(then.getMilliseconds()).padStart(3, "0")}`;
}

/**
 * The time in UTC, for a title
 * @param {Maybe} ms
 */
export function utc(ms) {
  if (!known(ms) || ms < 0) return "";
  const then = new Date(ms);
  return Number.isNaN(then.getTime()) ? "" : then.toISOString();
}

/**
 * 12.3%
 * @param {Maybe} x 1 is 100%
 */
export function percent(x) {
  if (!known(x)) return NONE;
  const n = x * 100;
  return `${n !== 0 && Math.abs(n) < 10 ? short(n) : Math.round(n)}%`;
}

/**
 * @param {Maybe} n
 * @returns {n is number}
 */
function known(n) {
  return typeof n === "number" && Number.isFinite(n);
}

/** @param {number} n */
function short(n) {
  const size = Math.abs(n);
  const digits = size >= 99.95 ? 0 : size >= 0.995 ? 1 : size >= 0.01 ? 2 : 3;
  const text = n.toFixed(digits);
  return digits ? text.replace(/\.?0+$/, "") || "0" : text;
}
