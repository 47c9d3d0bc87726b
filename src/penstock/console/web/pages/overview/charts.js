// The last hour as charts. The whole is asked for once, later what is new: the last step again, and those after it.

import { api, poll } from "../../lib/api.js";
import { chart } from "../../lib/chart.js";
import { h } from "../../lib/dom.js";
import { bytes, compact, duration, rate } from "../../lib/format.js";
import { problem } from "../../lib/layout.js";
import { setQuery } from "../../lib/router.js";
import { computed, signal } from "../../lib/signal.js";

const STEP_S = 10;
const KEPT_MS = 3_600_000;
const SHOWN_MS_MIN = 300_000;
const RANGES = /** @type {[string, string, number][]} */ ([["5m", "5 min", 300_000], ["15m", "15 min", 900_000], ["1h", "1 hour", KEPT_MS]]);

const SERIES = [
  ...["bytes_in", "bytes_out", "replication_bytes_in", "messages_in", "messages_out"],
  ...["requests_produce", "requests_fetch", "requests_other", "requests_http"],
  ...["produce_p50_ms", "produce_p99_ms", "http_p99_ms", "log_bytes", "cpu"],
];

/** @typedef {Map<number, number | null>} Course moments and values, in order */
/** @typedef {{total: Course, brokers: Map<string, Course>}} Kept */

/** What has come so far, by name of the series. */
class Collected {
  constructor() {
    /** @type {Map<string, Kept>} */
    this.series = new Map();
    this.last = 0;
    this.first = 0;
  }

  /** @param {any} answer of /cluster/history */
  add({ times, series }) {
    if (!times.length) return;
    for (const { name, total, brokers } of series) {
      const kept = this.series.get(name) ?? { total: new Map(), brokers: new Map() };
      this.series.set(name, kept);
      times.forEach((/** @type {number} */ at, /** @type {number} */ index) => kept.total.set(at, total[index]));
      for (const [id, values] of Object.entries(brokers)) {
        const own = kept.brokers.get(id) ?? new Map();
        kept.brokers.set(id, own);
        times.forEach((/** @type {number} */ at, /** @type {number} */ index) => own.set(at, values[index]));
      }
    }
    this.last = times[times.length - 1];
    for (const { total, brokers } of this.series.values()) [total, ...brokers.values()].forEach((each) => dropOld(each, this.last - KEPT_MS));
    this.first = this.series.values().next().value?.total.keys().next().value ?? this.last;
  }

  /** @param {string} name @returns {import("../../lib/chart.js").Point[]} */
  points(name) {
    return [...(this.series.get(name)?.total ?? [])];
  }

  /** @param {string} name @returns {import("../../lib/chart.js").Series[]} */
  byBroker(name) {
    const found = [...(this.series.get(name)?.brokers ?? [])].sort(([one], [other]) => Number(one) - Number(other));
    return found.map(([id, points]) => ({ name: `broker ${id}`, points: [...points] }));
  }
}

/** @param {Course} course @param {number} before */
function dropOld(course, before) {
  for (const at of course.keys()) {
    if (at >= before) return;
    course.delete(at);
  }
}

/** @param {{broker: number}[]} missing */
function without(missing) {
  const ids = missing.map((each) => each.broker).join(", ");
  return `Without ${missing.length === 1 ? "broker" : "brokers"} ${ids}: only a broker that is up remembers its last hour.`;
}

/** @param {import("../../lib/signal.js").Computed<Record<string, string>>} query */
export function charts(query) {
  const collected = new Collected();
  const version = signal(0);
  const asked = poll(async (abort) => {
    const since = collected.last ? collected.last - 1 : null;
    const answer = await api.get("/cluster/history", { series: SERIES.join(","), step: STEP_S, since }, { signal: abort });
    collected.add(answer);
    version.update((n) => n + 1);
    return answer.missing;
  }, STEP_S);
  const range = computed(() => RANGES.find(([id]) => id === query.value.range) ?? RANGES[2]);
  const span = computed(() => {
    version.value;
    const end = collected.last + STEP_S * 1000;
    const begin = Math.max(end - range.value[2], Math.min(collected.first, end - SHOWN_MS_MIN));
    return /** @type {[number, number]} */ ([begin, end]);
  });

  /**
   * @param {string} title
   * @param {[string, string][]} lines names and series
   * @param {(n: number) => string} format
   */
  const lines = (title, lines, format) =>
    of(title, () => lines.map(([name, series]) => ({ name, points: collected.points(series) })), format);
  /**
   * @param {string} title
   * @param {() => import("../../lib/chart.js").Series[]} series
   * @param {(n: number) => string} format
   * @param {boolean} [stacked]
   */
  const of = (title, series, format, stacked = false) => {
    const shown = computed(() => {
      version.value;
      return series();
    });
    return h("div", { class: "card" }, chart({ title, series: shown, format, stacked, range: span, height: 116 }));
  };

  return h(
    "section",
    { aria: { label: "The last hour" } },
    h(
      "div",
      { class: "overview-range" },
      h("h2", null, "Load"),
      h(
        "div",
        { class: "row", role: "group", aria: { label: "Time range" } },
        RANGES.map(([id, label]) =>
          h("button", { type: "button", class: "plain small", aria: { pressed: () => String(range.value[0] === id) }, on: { click: () => setQuery({ range: id === "1h" ? null : id }, { replace: true }) } }, label),
        ),
      ),
    ),
    () => (asked.value.error ? problem(asked.value.error) : null),
    () => (asked.value.value?.length ? h("p", { class: "muted small overview-missing" }, without(asked.value.value)) : null),
    h(
      "div",
      { class: "overview-charts" },
      lines("Throughput", [["written", "bytes_in"], ["read", "bytes_out"], ["replicated", "replication_bytes_in"]], (n) => rate(n, "bytes")),
      lines("Messages", [["written", "messages_in"], ["read", "messages_out"]], (n) => rate(n)),
      lines("Requests", [["Produce", "requests_produce"], ["Fetch", "requests_fetch"], ["other", "requests_other"], ["HTTP", "requests_http"]], (n) => rate(n)),
      lines("Latency", [["Produce p50", "produce_p50_ms"], ["Produce p99", "produce_p99_ms"], ["HTTP p99", "http_p99_ms"]], (n) => duration(n)),
      of("Size of logs", () => collected.byBroker("log_bytes"), (n) => bytes(n), true),
      of("CPU", () => collected.byBroker("cpu"), (n) => `${compact(Math.round(n * 1000) / 10)}%`),
    ),
  );
}
