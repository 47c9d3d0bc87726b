// The partitions of a topic: leaders, replicas, offsets, sizes and lags; and the replicas of one of them.

import { h } from "../../lib/dom.js";
import { bytes, count, duration } from "../../lib/format.js";
import { badge, card, emptyState } from "../../lib/layout.js";
import { link, path, setQuery } from "../../lib/router.js";
import { computed } from "../../lib/signal.js";
import { table } from "../../lib/table.js";

/** @typedef {import("./shapes.js").Partition} Partition */
/** @typedef {import("./shapes.js").Topic} Topic */

/**
 * @param {import("../../lib/signal.js").Computed<Topic | undefined>} topic
 * @param {import("../../lib/signal.js").Computed<Record<string, string>>} query
 */
export function partitionsTab(topic, query) {
  const rows = computed(() => topic.value?.partitions ?? []);
  const chosen = computed(() => rows.value.find((each) => String(each.partition) === query.value.partition));
  const isChosen = computed(() => chosen.value !== undefined);
  return h("div", { class: "stack" }, partitionTable(rows), () => (isChosen.value ? replicas(topic, chosen) : h("p", { class: "muted small" }, "Open a partition to see its replicas.")));
}

/** @param {import("../../lib/signal.js").Computed<Partition[]>} rows */
function partitionTable(rows) {
  return table({
    label: "Partitions",
    rows,
    key: (row) => String(row.partition),
    sort: { key: "partition" },
    height: "480px",
    onOpen: (row) => setQuery({ partition: row.partition }),
    rowClass: (row) => (row.leader === null ? "is-bad" : row.isr.length < row.replicas.length ? "is-warn" : null),
    columns: [
      { key: "partition", title: "Partition", width: 98, align: "right", value: (row) => row.partition },
      { key: "leader", title: "Leader", width: 86, align: "right", value: (row) => row.leader, cell: (row) => (row.leader === null ? badge("none", "bad") : String(row.leader)) },
      { key: "replicas", title: "Replicas", width: 110, about: "The preferred leader first. Those out of sync are marked", value: (row) => row.replicas.join(","), cell: brokers, hint: (row) => `Replicas ${row.replicas.join(", ")}; in sync: ${row.isr.join(", ") || "none"}` },
      { key: "state", title: "State", width: 118, value: (row) => (row.leader === null ? 2 : row.isr.length < row.replicas.length ? 1 : 0), cell: state },
      { key: "start", title: "Log start", width: 102, align: "right", mono: true, value: (row) => row.log_start, cell: (row) => count(row.log_start) },
      { key: "watermark", title: "Watermark", width: 116, align: "right", mono: true, about: "High watermark: consumers read below it", value: (row) => row.high_watermark, cell: (row) => count(row.high_watermark) },
      { key: "end", title: "End", width: 100, align: "right", mono: true, value: (row) => row.end, cell: (row) => count(row.end) },
      { key: "size", title: "Size", width: 88, align: "right", about: "Of the leader's log", value: (row) => row.size_bytes, cell: (row) => (row.size_bytes === null ? "unknown" : bytes(row.size_bytes)) },
      { key: "segments", title: "Segments", width: 108, align: "right", value: (row) => row.segments, cell: (row) => count(row.segments) },
      { key: "lag", title: "Lag", width: 92, align: "right", about: "Records that the slowest replica lacks", value: (row) => row.lag_max, cell: (row) => (row.lag_max === null ? "unknown" : count(row.lag_max)) },
    ],
  });
}

/** @param {Partition} row */
function brokers(row) {
  return row.replicas.map((each, at) => [at ? ", " : "", row.isr.includes(each) ? String(each) : h("span", { class: "out-of-sync", title: `Broker ${each} is not in sync` }, `${each} ✕`)]);
}

/** @param {Partition} row */
function state(row) {
  if (row.leader === null) return badge("offline", "bad", "No replica may lead it now");
  if (row.isr.length < row.replicas.length) return badge("out of sync", "warn", `${row.isr.length} of ${row.replicas.length} replicas are in sync`);
  return badge("in sync", "ok");
}

/**
 * @param {import("../../lib/signal.js").Computed<Topic | undefined>} topic
 * @param {import("../../lib/signal.js").Computed<Partition | undefined>} chosen
 */
function replicas(topic, chosen) {
  const rows = computed(() => chosen.value?.replica_states ?? []);
  const name = topic.peek()?.name ?? "";
  const number = computed(() => chosen.value?.partition ?? 0);
  return card(
    () => `Partition ${number.value}`,
    h(
      "div",
      { class: "row spread gap-below" },
      h("span", { class: "muted" }, () => `Leader epoch ${chosen.value?.leader_epoch}; last stable offset ${count(chosen.value?.last_stable)}`),
      h("span", { class: "row" }, () => [
        link(`${path("topics", name, "messages")}?partition=${number.value}`, null, "Messages"),
        link(`${path("topics", name, "segments")}?partition=${number.value}`, null, "Segments"),
        h("button", { type: "button", class: "plain small", on: { click: () => setQuery({ partition: null }) } }, "Close"),
      ]),
    ),
    () =>
      rows.value.length
        ? table({
            label: "Replicas",
            rows,
            key: (row) => String(row.broker),
            columns: [
              { key: "broker", title: "Broker", width: 90, align: "right", value: (row) => row.broker },
              { key: "role", title: "Role", width: 110, value: (row) => (row.is_leader ? "leader" : "follower") },
              { key: "sync", title: "In sync", width: 110, value: (row) => Number(row.in_sync), cell: (row) => (row.in_sync ? badge("in sync", "ok") : badge("out of sync", "warn")) },
              { key: "end", title: "Log end", width: 120, align: "right", mono: true, value: (row) => row.log_end, cell: (row) => (row.log_end === null ? "unknown" : count(row.log_end)) },
              { key: "lag", title: "Lag", width: 100, align: "right", about: "Records that it lacks", value: (row) => row.lag, cell: (row) => (row.lag === null ? "unknown" : count(row.lag)) },
              { key: "behind", title: "Caught up", width: 130, align: "right", about: "When it was last at the leader's log end", value: (row) => row.behind_ms, cell: (row) => (row.behind_ms === null ? "unknown" : row.behind_ms === 0 ? "now" : `${duration(row.behind_ms)} ago`) },
              { key: "size", title: "Size", width: 100, align: "right", value: (row) => row.size_bytes, cell: (row) => (row.size_bytes === null ? "unknown" : bytes(row.size_bytes)) },
            ],
          })
        : emptyState("No replicas", "Nothing is known about this partition."),
  );
}
