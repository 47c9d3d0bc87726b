// Lag over time: what the node remembers, continued by what the page sees; and for a Spark query what its pipeline reports.

import { api, poll } from "../lib/api.js";
import { chart } from "../lib/chart.js";
import { h } from "../lib/dom.js";
import { compact, duration } from "../lib/format.js";
import { card } from "../lib/layout.js";
import { link, path } from "../lib/router.js";
import { computed, effect, signal } from "../lib/signal.js";
import { behind } from "./groups.js";
import { batchCharts, pipelineBadge } from "./pipeline-parts.js";

/** @typedef {[number, number | null, number | null]} Sample time, lag in records, lag in seconds */

const SAMPLES_MAX = 1500;
const PIPELINE_POLL_S = 5;

/**
 * @param {string} group
 * @param {import("../lib/signal.js").Computed<import("../lib/api.js").Polled<any>>} lag polled by the page
 */
export function lagCharts(group, lag) {
  const samples = signal(/** @type {Sample[]} */ ([]));
  remembered(group).then((found) => samples.update((now) => [...found.filter(([ms]) => !now.length || ms < now[0][0]), ...now]));
  /** @type {any} */
  let last = null;
  effect(() => {
    const found = lag.value.value;
    if (!found || found === last) return;
    last = found;
    samples.update((now) => [...now.slice(-SAMPLES_MAX), sampleOf(committed(found.partitions))]);
  });
  const isPart = computed(() => committed(lag.value.value?.partitions ?? []).length < (lag.value.value?.partitions ?? []).length);
  const records = computed(() => [{ name: "Records", points: samples.value.map(([ms, n]) => /** @type {[number, number | null]} */ ([ms, n])) }]);
  const seconds = computed(() => [{ name: "Behind", points: samples.value.map(([ms, , s]) => /** @type {[number, number | null]} */ ([ms, s])) }]);
  const isSpark = computed(() => !!lag.value.value?.spark);
  return h(
    "div",
    null,
    h(
      "div",
      { class: "grid-2" },
      card(null, chart({ title: "Lag in records", series: records, format: compact, height: 120 })),
      card(null, chart({ title: "Lag in time", series: seconds, format: behind, height: 120 })),
    ),
    () => (isPart.value ? h("p", { class: "muted small chart-note" }, "The charts count partitions with a committed offset.") : null),
    () => (isSpark.value ? sparkFlow(group) : null),
  );
}

/** As the node samples them. @param {any[]} partitions */
function committed(partitions) {
  return partitions.filter((each) => each.committed !== null);
}

/** @param {any[]} partitions @returns {Sample} */
function sampleOf(partitions) {
  const isKnown = partitions.every((each) => each.lag !== null);
  const records = partitions.reduce((sum, each) => sum + each.lag, 0);
  const seconds = partitions.every((each) => each.lag_seconds !== null) ? Math.max(0, ...partitions.map((each) => each.lag_seconds)) : null;
  return [Date.now(), isKnown ? records : null, seconds];
}

/**
 * What the node has kept of the last hour.
 * @param {string} group
 * @returns {Promise<Sample[]>}
 */
async function remembered(group) {
  try {
    const found = await api.get(`${path("groups", group)}/lag/history`);
    return found.times.map((/** @type {number} */ ms, /** @type {number} */ at) => [ms, found.lag[at], found.lag_seconds[at]]);
  } catch {
    return []; // the page shows what it sees from now on
  }
}

/**
 * The flow of a pipeline that commits to the group, if it reports.
 * @param {string} group
 */
function sparkFlow(group) {
  const found = poll(async (signal) => {
    const listed = await api.get("/pipelines", null, { signal });
    const owners = listed.pipelines.filter((/** @type {any} */ each) => each.groups.includes(group));
    const owner = owners.find((/** @type {any} */ each) => each.state === "running") ?? owners[0];
    return owner ? api.get(path("pipelines", owner.pipeline), null, { signal }) : null;
  }, PIPELINE_POLL_S);
  const pipeline = computed(() => found.value.value ?? null);
  const flow = computed(() => pipeline.value?.flows.find((/** @type {any} */ each) => each.group === group) ?? null);
  const flows = computed(() => (flow.value ? [flow.value] : []));
  const has = computed(() => flow.value !== null);
  return () =>
    has.value
      ? card(
          h("span", { class: "row" }, "Flow ", () => flow.value?.flow, " of pipeline ", () => link(path("pipelines", pipeline.value?.pipeline ?? ""), null, pipeline.value?.pipeline), () => pipelineBadge(flow.value?.state ?? "")),
          h("p", { class: "muted small flow-note" }, () => `Last batch: ${compact(flow.value?.rows_per_s)} rows/s in ${duration(flow.value?.batch_ms)}`),
          batchCharts(flows),
        )
      : null;
}
