// The logs of a topic as a picture: a row for each partition, a bar for each segment, drawn to scale.

import { api, poll } from "../../lib/api.js";
import { h } from "../../lib/dom.js";
import { select } from "../../lib/form.js";
import { bytes, count, time } from "../../lib/format.js";
import { card, emptyState, loading } from "../../lib/layout.js";
import { path, setQuery } from "../../lib/router.js";
import { computed, signal } from "../../lib/signal.js";
import { lookupBox } from "./lookup.js";
import { segmentCard } from "./segment.js";

/** @typedef {import("./shapes.js").PartitionLog} PartitionLog */
/** @typedef {import("./shapes.js").Segment} Segment */

const ROWS = 30; // partitions in the picture
const SEGMENTS_MAX = 60; // of a partition, the newest

/**
 * @param {string} name
 * @param {import("../../lib/signal.js").Computed<import("./shapes.js").Topic | undefined>} topic
 * @param {import("../../lib/signal.js").Computed<Record<string, string>>} query
 */
export function segmentsTab(name, topic, query) {
  const base = `/api/architecture${path("topics", name)}`;
  const chosen = computed(() => (query.value.partition === undefined ? null : Number(query.value.partition)));
  const first = computed(() => Math.floor((chosen.value ?? 0) / ROWS) * ROWS);
  const polled = poll((stop) => api.get(base, { entries: 0, segments: SEGMENTS_MAX, from: first.value, partitions: ROWS }, { signal: stop }), 15);
  const logs = computed(() => /** @type {PartitionLog[]} */ (polled.value.value?.partitions ?? []));
  const isReady = computed(() => polled.value.value !== undefined);
  const scale = signal(query.peek().scale === "offsets" ? "offsets" : "size");
  const open = computed(() => find(logs.value, chosen.value, query.value.segment));
  const isOpen = computed(() => open.value !== null);
  const total = computed(() => topic.value?.partitions.length ?? 0);
  const number = computed(() => chosen.value ?? first.value);

  return h(
    "div",
    { class: "stack" },
    card(
      "Segments",
      h(
        "div",
        { class: "toolbar" },
        h("label", { class: "row" }, "Width by", select([["size", "size"], ["offsets", "number of offsets"]], { value: scale, onInput: (/** @type {string} */ text) => setQuery({ scale: text === "size" ? null : text }, { replace: true }) })),
        () => (total.value > ROWS ? pager(first.value, total.value) : null),
        h("span", { class: "spacer-x" }),
        legend(),
      ),
      () => (isReady.value ? null : loading(polled, () => null, { lines: 6 })),
      () => (isReady.value && polled.value.error ? loading(polled, () => null) : null),
      () => picture(logs.value, scale.value, query.value),
    ),
    () => (isOpen.value ? segmentCard(`${base}/partitions/${chosen.value}`, open, query) : null),
    () => (isReady.value ? lookupBox(base, name, total, number, logs) : null),
  );
}

/**
 * @param {PartitionLog[]} logs
 * @param {number | null} partition
 * @param {string | undefined} segment
 * @returns {Segment | null}
 */
function find(logs, partition, segment) {
  if (segment === undefined) return null;
  const log = logs.find((each) => each.partition === partition);
  return log?.segments.find((each) => String(each.baseOffset) === segment) ?? null;
}

/** @param {number} first @param {number} total */
function pager(first, total) {
  const go = (/** @type {number} */ to) => () => setQuery({ partition: to, segment: null, at: null });
  return h(
    "span",
    { class: "row" },
    h("button", { type: "button", class: "plain small", disabled: first === 0, on: { click: go(first - ROWS) } }, "Previous"),
    h("span", { class: "muted" }, `Partitions ${first} to ${Math.min(first + ROWS, total) - 1} of ${count(total)}`),
    h("button", { type: "button", class: "plain small", disabled: first + ROWS >= total, on: { click: go(first + ROWS) } }, "Next"),
  );
}

function legend() {
  return h(
    "span",
    { class: "legend row small muted" },
    [["sealed", "sealed"], ["compacted", "compacted"], ["active", "active: records are appended here"]].map(([kind, label]) => h("span", { class: "row" }, h("i", { class: `swatch ${kind}` }), label)),
  );
}

/**
 * @param {PartitionLog[]} logs
 * @param {string} scale
 * @param {Record<string, string>} query
 */
function picture(logs, scale, query) {
  if (!logs.length) return null;
  const known = logs.filter((each) => each.segments.length);
  if (!known.length) return emptyState("No segments", "No broker that has the logs of these partitions answers.");
  const weight = (/** @type {Segment} */ each) => (scale === "size" ? each.sizeBytes : each.endOffset - each.baseOffset);
  const whole = (/** @type {PartitionLog} */ log) => log.segments.reduce((sum, each) => sum + weight(each), 0);
  const most = Math.max(1, ...known.map(whole));
  return h(
    "div",
    { class: "logs" },
    logs.map((log) => {
      const older = log.segmentCount - log.segments.length;
      return h(
        "div",
        { class: "log-row" },
        h("span", { class: "log-name" }, `Partition ${log.partition}`),
        h(
          "div",
          { class: "log-room" },
          older > 0 ? h("span", { class: "older", title: `${count(older)} older segments are not drawn` }, `+${count(older)}`) : null,
          log.segments.length
            ? h("div", { class: "log-strip", style: { width: `${Math.max(2, (whole(log) / most) * 100)}%` } }, log.segments.map((each) => bar(log, each, weight(each), query)))
            : h("span", { class: "muted small" }, "unknown"),
        ),
        h("span", { class: "log-size muted small" }, `${bytes(log.sizeBytes)}, ${count(log.segmentCount)} ${log.segmentCount === 1 ? "segment" : "segments"}`),
      );
    }),
  );
}

/**
 * @param {PartitionLog} log
 * @param {Segment} segment
 * @param {number} weight
 * @param {Record<string, string>} query
 */
function bar(log, segment, weight, query) {
  const kind = segment.isActive ? "active" : segment.isCompacted ? "compacted" : "sealed";
  const isChosen = query.partition === String(log.partition) && query.segment === String(segment.baseOffset);
  const span = segment.endOffset > segment.baseOffset ? `offsets ${segment.baseOffset} to ${segment.endOffset - 1}` : "empty";
  const about = `Segment ${segment.baseOffset} of partition ${log.partition}: ${span}, ${bytes(segment.sizeBytes)}, ${kind}`;
  return h("button", {
    type: "button",
    class: ["segment-bar", kind],
    style: { "flex-grow": Math.max(weight, 1) },
    title: `${about}${segment.firstTimestamp >= 0 ? `\n${time(segment.firstTimestamp)} to ${time(segment.largestTimestamp)}` : ""}`,
    aria: { label: about, pressed: String(isChosen) },
    on: { click: () => setQuery({ partition: log.partition, segment: isChosen ? null : segment.baseOffset, at: null }) },
  });
}
