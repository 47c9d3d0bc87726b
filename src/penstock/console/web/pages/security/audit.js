// What the audit of all brokers saw last: denied operations, log-ins, changes.

import { api, poll } from "../../lib/api.js";
import { dialog } from "../../lib/dialog.js";
import { h } from "../../lib/dom.js";
import { filterInput, select } from "../../lib/form.js";
import { count, time } from "../../lib/format.js";
import { jsonTree } from "../../lib/json-tree.js";
import { kept } from "../../lib/kept.js";
import { badge, emptyState } from "../../lib/layout.js";
import { link, path, setQuery } from "../../lib/router.js";
import { computed, signal } from "../../lib/signal.js";
import { table } from "../../lib/table.js";

/** @typedef {{time: string, node: number, event: string, result: string, count: number, principal: string | null, client: string | null, request: string | null, operation: string | null, resource_type: string | null, resource_name: string | null, reason: string | null, change: Record<string, any> | null}} Line */

/** @type {Record<string, import("../../lib/layout.js").Tone>} */
const TONES = { denied: "bad", failed: "bad", dropped: "warn", allowed: "ok", done: "info" };
const LINES_MAX = 500;

/** @param {Line} line */
function resource(line) {
  const name = line.resource_name;
  if (!name) return line.resource_type ?? "–";
  if (line.resource_type === "Cluster") return "the cluster";
  // ACLs name prefixes and patterns, too.
  const at = line.event !== "operation" ? null : line.resource_type === "Topic" ? "topics" : line.resource_type === "Group" ? "groups" : null;
  return [`${line.resource_type} `, at ? link(path(at, name), null, name) : name];
}

/** The time of a line of today, and the day of others. @param {Line} line */
function when(line) {
  const then = Date.parse(line.time);
  const whole = time(then);
  return whole.slice(0, 10) === time(Date.now()).slice(0, 10) ? whole.slice(11) : whole.slice(5, 19);
}

/** @param {Line} line */
function what(line) {
  const { change } = line;
  if (!change) return line.reason ?? "";
  if ("old" in change || "new" in change) return `${change.name ? `${change.name}: ` : ""}${change.old ?? "–"} → ${change.new ?? "–"}`;
  return Object.entries(change).map(([name, value]) => `${name} ${value}`).join(", ");
}

/** @type {import("../security.js").Part} */
export function part({ query }, status) {
  if (!status.audit) {
    return emptyState("The audit is off", ["It records denied operations, log-ins, and changes of users, ACLs, quotas and settings. Set ", h("code", null, "audit.log=denied"), " (or ", h("code", null, "all"), ") in the settings of all nodes, and restart them. ", h("code", null, "audit.file"), " and ", h("code", null, "audit.topic"), " keep it."]);
  }
  const filter = signal("");
  const event = computed(() => query.value.event ?? "");
  const result = computed(() => query.value.result ?? "");
  const found = poll(/** @returns {Promise<{lines: Line[], unavailable: number[]}>} */ (signal) => api.get("/audit", { event: event.value, result: result.value, limit: LINES_MAX }, { signal }), 5);
  return h(
    "div",
    null,
    h(
      "div",
      { class: "toolbar" },
      filterInput(filter, { placeholder: "Filter by principal, name, …" }),
      select([["", "All events"], ["operation", "Operations"], ["login", "Log-ins"], ["change", "Changes"]], { value: event.peek(), aria: { label: "Event" }, onInput: (/** @type {string} */ text) => setQuery({ event: text }, { replace: true }) }),
      select([["", "All results"], ["denied", "Denied"], ["allowed", "Allowed"], ["done", "Done"], ["failed", "Failed"]], { value: result.peek(), aria: { label: "Result" }, onInput: (/** @type {string} */ text) => setQuery({ result: text }, { replace: true }) }),
      status.audit_topic ? link(path("topics", status.audit_topic, "messages"), null, `All of it: topic ${status.audit_topic}`) : h("span", { class: "muted small" }, "The last 500 lines of each broker"),
    ),
    kept(found, (value) => [
      () => (value.value.unavailable.length ? h("p", { class: "problem", role: "alert" }, `Brokers that did not answer: ${value.value.unavailable.join(", ")}. Their lines are missing.`) : null),
      table({
        label: "Audit",
        rows: computed(() => value.value.lines.map((line, at) => ({ ...line, id: `${line.time}-${line.node}-${value.value.lines.length - at}` }))),
        key: (each) => each.id,
        filter,
        onOpen: (each) => dialog({ title: "A line of the audit", wide: true, body: jsonTree(Object.fromEntries(Object.entries(each).filter(([name, one]) => one !== null && name !== "id")), { open: 2 }) }),
        empty: emptyState("Nothing yet", "Denied operations, log-ins and changes appear here within seconds."),
        columns: [
          { key: "time", title: "Time", width: 134, mono: true, value: (each) => each.time, cell: when, hint: (each) => each.time },
          { key: "result", title: "Result", width: 90, value: (each) => each.result, cell: (each) => badge(each.result, TONES[each.result] ?? "neutral") },
          { key: "principal", title: "Principal", width: 130, value: (each) => each.principal, cell: (each) => each.principal ?? "–", hint: (each) => `${each.principal ?? ""} from ${each.client ?? ""}` },
          { key: "operation", title: "Operation", width: 160, value: (each) => `${each.event} ${each.operation ?? ""}`, cell: (each) => (each.event === "login" ? `Log-in ${each.operation ?? ""}` : (each.operation ?? each.event)), hint: (each) => each.request ?? "" },
          { key: "resource", title: "Resource", value: (each) => `${each.resource_type ?? ""} ${each.resource_name ?? ""}`, cell: resource, hint: (each) => each.resource_name ?? "" },
          { key: "what", title: "Details", value: what, hint: what },
          { key: "count", title: "Count", width: 76, align: "right", value: (each) => each.count, cell: (each) => count(each.count) },
          { key: "node", title: "Node", width: 70, align: "right", value: (each) => each.node },
        ],
      }),
    ]),
  );
}
