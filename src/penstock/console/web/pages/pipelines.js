// The Spark pipelines that report to this cluster; and one of them: its graph, flows, batches and errors.

import { api, poll } from "../lib/api.js";
import { h } from "../lib/dom.js";
import { filterInput } from "../lib/form.js";
import { ago, compact, count, duration, time, utc } from "../lib/format.js";
import { card, cut, emptyState, pageHeader, stat } from "../lib/layout.js";
import { link, navigate, path } from "../lib/router.js";
import { computed, signal } from "../lib/signal.js";
import { table } from "../lib/table.js";
import { batchCharts, pipelineBadge } from "./pipeline-parts.js";
import { pipelineGraph } from "./pipeline-graph.js";
import { whenReady } from "./when-ready.js";

export const title = (/** @type {Record<string, string>} */ params) => params.pipeline ?? "Pipelines";

/** @typedef {import("./pipeline-parts.js").Pipeline} Pipeline */
/** @typedef {import("./pipeline-parts.js").Flow} Flow */
/** @typedef {{pipeline: string, state: string, host: string, updated_ms: number, rows_per_s: number, lag: number | null, error: string | null, flows: string[]}} Listed */

const POLL_S = 3;
const LIMIT = 500;

/** @param {import("../lib/router.js").Context} ctx */
export function page(ctx) {
  return ctx.params.pipeline === undefined ? list() : one(ctx.params.pipeline);
}

function list() {
  const listed = poll((signal) => api.get("/pipelines", { limit: LIMIT }, { signal }), POLL_S);
  const rows = computed(() => /** @type {Listed[]} */ (listed.value.value?.pipelines ?? []));
  const isEmpty = computed(() => rows.value.length === 0);
  const filter = signal("");
  return h(
    "div",
    null,
    pageHeader({ title: "Pipelines" }),
    whenReady([listed], () => [
      () =>
        isEmpty.value
          ? emptyState("No pipelines report here", h("span", null, "Run one with ", h("code", null, "penstock pipeline run FILE --server HOST:PORT"), ". It appears here, wherever it runs."))
          : [h("div", { class: "toolbar" }, filterInput(filter)), pipelineTable()],
    ]),
  );

  function pipelineTable() {
    return table({
      label: "Pipelines",
      rows,
      key: (row) => row.pipeline,
      filter,
      onOpen: (row) => navigate(path("pipelines", row.pipeline)),
      columns: [
        { key: "pipeline", title: "Pipeline", value: (row) => row.pipeline, cell: (row) => link(path("pipelines", row.pipeline), { title: row.pipeline }, row.pipeline) },
        { key: "state", title: "State", value: (row) => row.state, cell: (row) => pipelineBadge(row.state), width: 110 },
        { key: "flows", title: "Flows", value: (row) => row.flows.length, align: "right", width: 80, hint: (row) => row.flows.join(", ") },
        { key: "rate", title: "Rows/s", value: (row) => row.rows_per_s, cell: (row) => compact(row.rows_per_s), align: "right", width: 100 },
        { key: "lag", title: "Lag", value: (row) => row.lag, cell: (row) => count(row.lag), align: "right", width: 110 },
        { key: "updated", title: "Reported", value: (row) => row.updated_ms, cell: (row) => ago(row.updated_ms), hint: (row) => utc(row.updated_ms), width: 120 },
        { key: "host", title: "Host", value: (row) => row.host, cell: (row) => cut(row.host), width: 130 },
        { key: "error", title: "Last error", value: (row) => row.error ?? "", cell: (row) => cut(row.error ?? "–") },
      ],
    });
  }
}

/** @param {string} name */
function one(name) {
  const polled = poll((signal) => api.get(path("pipelines", name), null, { signal }), POLL_S);
  const now = () => /** @type {Pipeline} */ (polled.value.value);
  const flows = computed(() => polled.value.value?.flows ?? []);
  const error = computed(() => polled.value.value?.error ?? flows.value.map((/** @type {Flow} */ each) => each.error).find(Boolean) ?? null);
  const known = (/** @type {(flow: Flow) => number | null} */ of) => flows.value.map(of).filter((/** @type {number | null} */ each) => each !== null);
  const sum = (/** @type {number[]} */ values) => (values.length ? values.reduce((total, each) => total + each, 0) : null);
  return h(
    "div",
    null,
    pageHeader({ title: name, crumbs: [["Pipelines", "/pipelines"]] }),
    whenReady([polled], () => [
      h(
        "div",
        { class: "stats" },
        stat("State", () => pipelineBadge(now().state), { hint: h("span", { title: () => utc(now().updated_ms) }, () => `reported ${ago(now().updated_ms)}`) }),
        stat("Rows", () => compact(sum(known((each) => each.rows))), { hint: "read in this run" }),
        stat("Rows per second", () => compact(sum(flows.value.filter((/** @type {Flow} */ each) => each.state === "running").map((/** @type {Flow} */ each) => each.rows_per_s)))),
        stat("Longest batch", () => duration(Math.max(0, ...known((each) => each.batch_ms)) || null), { hint: "of the last ones" }),
        stat("Lag", () => count(sum(known((each) => each.lag))), { hint: "records" }),
        stat("Process", () => cut(now().host), { hint: h("span", null, () => `pid ${now().pid}, ${now().spark}`) }),
      ),
      () => (error.value ? h("div", { class: "problem", role: "alert" }, h("strong", null, "Last error"), h("p", null, error.value)) : null),
      card("Flows of rows", () => (now().nodes.length ? pipelineGraph(now()) : h("p", { class: "muted" }, "The report has no graph."))),
      card(null, batchCharts(flows)),
      card("Flows", flowTable()),
      h("p", { class: "muted small" }, () => `Run ${now().run}, started ${time(now().started_ms)}, Penstock ${now().release}`),
    ]),
  );

  function flowTable() {
    return table({
      label: "Flows",
      rows: flows,
      key: (row) => row.flow,
      columns: [
        { key: "flow", title: "Flow", value: (row) => row.flow },
        { key: "state", title: "State", value: (row) => row.state, cell: (row) => pipelineBadge(row.state), width: 110 },
        { key: "batch", title: "Batch", value: (row) => row.batch, cell: (row) => count(row.batch), align: "right", width: 90 },
        { key: "rows", title: "Rows", value: (row) => row.rows, cell: (row) => count(row.rows), align: "right", width: 120 },
        { key: "rate", title: "Rows/s", value: (row) => row.rows_per_s, cell: (row) => compact(row.rows_per_s), align: "right", width: 90 },
        { key: "ms", title: "Batch time", value: (row) => row.batch_ms, cell: (row) => duration(row.batch_ms), align: "right", width: 110 },
        { key: "lag", title: "Lag", value: (row) => row.lag, cell: (row) => count(row.lag), align: "right", width: 100 },
        { key: "state_rows", title: "State rows", about: "Rows in the state of aggregations, joins and deduplication", value: (row) => row.state_rows, cell: (row) => count(row.state_rows), align: "right", width: 110 },
        { key: "watermark", title: "Watermark", value: (row) => row.watermark ?? "", cell: (row) => row.watermark ?? "–", width: 190 },
        { key: "group", title: "Group", value: (row) => row.group ?? "", cell: (row) => (row.group ? link(path("groups", row.group), { title: row.group }, row.group) : "–") },
      ],
    });
  }
}
