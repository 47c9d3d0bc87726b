// What pages show of a pipeline's flows: states, and charts of their batches.

import { chart } from "../lib/chart.js";
import { h } from "../lib/dom.js";
import { compact, duration } from "../lib/format.js";
import { badge } from "../lib/layout.js";
import { computed } from "../lib/signal.js";

/** @typedef {{time: number, rows: number, ms: number | null, rows_per_s: number, lag: number | null}} Batch */
/** @typedef {{flow: string, state: string, group: string | null, batch: number | null, rows: number, rows_per_s: number, batch_ms: number | null, lag: number | null, state_rows: number | null, watermark: string | null, error: string | null, batches: Batch[]}} Flow */
/** @typedef {{id: string, kind: string, name: string, what: string, topics: string[]}} GraphNode */
/** @typedef {{source: string, target: string}} GraphEdge */
/** @typedef {{pipeline: string, run: string, state: string, started_ms: number, updated_ms: number, host: string, pid: number, spark: string, release: string, error: string | null, flows: Flow[], nodes: GraphNode[], edges: GraphEdge[]}} Pipeline */

/** @type {Record<string, import("../lib/layout.js").Tone>} */
const TONES = { running: "ok", starting: "info", stopping: "warn", failed: "bad", lost: "bad" };

/** @type {Record<string, string>} */
const MEANINGS = {
  lost: "Its process ended without a report, or does not reach the brokers.",
  finished: "There was nothing left to read.",
};

/** @param {string} state of a pipeline or a flow */
export function pipelineBadge(state) {
  return badge(state, TONES[state] ?? "neutral", MEANINGS[state]);
}

/**
 * Durations and rates of the last batches.
 * @param {import("../lib/signal.js").Computed<Flow[]>} flows
 */
export function batchCharts(flows) {
  const series = (/** @type {(batch: Batch) => number | null} */ of) =>
    computed(() => flows.value.map((each) => ({ name: each.flow, points: each.batches.map((batch) => /** @type {[number, number | null]} */ ([batch.time, of(batch)])) })));
  return h(
    "div",
    { class: "grid-2" },
    chart({ title: "Batch duration", series: series((batch) => batch.ms), format: duration, height: 140 }),
    chart({ title: "Rows per second", series: series((batch) => batch.rows_per_s), format: compact, height: 140 }),
  );
}
