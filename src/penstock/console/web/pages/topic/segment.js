// One segment: its figures, its batches drawn to scale and listed, the entries of its indexes.

import { api } from "../../lib/api.js";
import { h, svg } from "../../lib/dom.js";
import { bytes, count, time, utc } from "../../lib/format.js";
import { badge, card, keyValue, problem, skeleton } from "../../lib/layout.js";
import { setQuery } from "../../lib/router.js";
import { computed, effect, onDispose, signal } from "../../lib/signal.js";
import { table } from "../../lib/table.js";

/** @typedef {import("./shapes.js").Batch} Batch */
/** @typedef {import("./shapes.js").Segment} Segment */
/** @typedef {{entries: number, firstEntry: number, offsetIndex: {offset: number, position: number}[], timeEntries: number, firstTimeEntry: number, timeIndex: {timestamp: number, offset: number}[]}} Indexes */

const PAGE = 100;
const ENTRIES = 200;
const WIDTH = 1000; // units of the drawing

/**
 * @param {string} base path of the partition in the API
 * @param {import("../../lib/signal.js").Computed<Segment | null>} segment
 * @param {import("../../lib/signal.js").Computed<Record<string, string>>} query
 */
export function segmentCard(base, segment, query) {
  const baseOffset = computed(() => segment.value?.baseOffset ?? 0);
  const start = computed(() => Math.max(baseOffset.value, Number(query.value.at ?? 0) || 0));
  const batches = signal(/** @type {Batch[]} */ ([]));
  const indexes = signal(/** @type {Indexes | null} */ (null));
  const next = signal(/** @type {number | null} */ (null));
  const error = signal(/** @type {unknown} */ (null));
  const isLoading = signal(true);

  /** @param {number} offset @param {AbortSignal} [stop] */
  async function load(offset, stop) {
    isLoading.set(true);
    try {
      const page = await api.get(`${base}/batches`, { offset, limit: PAGE }, { signal: stop });
      const isThis = page.segment === baseOffset.peek();
      batches.update((before) => [...before, ...(isThis ? page.batches : [])]);
      next.set(isThis ? page.nextOffset : null);
      if (!indexes.peek()) indexes.set(await api.get(`${base}/indexes`, { offset, limit: ENTRIES }, { signal: stop }));
    } catch (failure) {
      if (!stop?.aborted) error.set(failure);
    } finally {
      if (!stop?.aborted) isLoading.set(false);
    }
  }
  effect(() => {
    const offset = start.value;
    const control = new AbortController();
    batches.set([]);
    indexes.set(null);
    error.set(null);
    load(offset, control.signal);
    onDispose(() => control.abort());
  });
  const hasBatches = computed(() => batches.value.length > 0);

  return card(
    () => `Segment ${baseOffset.value}`,
    h("div", { class: "row spread gap-below" }, h("code", { class: "muted" }, () => segment.value?.file), h("button", { type: "button", class: "plain small", on: { click: () => setQuery({ segment: null, at: null }) } }, "Close")),
    () => figures(segment.value),
    () => (error.value ? problem(error.value) : null),
    () => (hasBatches.value ? null : isLoading.value ? skeleton(4) : h("p", { class: "muted" }, "This segment has no batch.")),
    () => (batches.value.length && segment.value ? drawing(segment.value, batches.value, indexes.value) : null),
    h("h3", { class: "gap-above" }, () => `Batches${start.value > baseOffset.value ? ` from offset ${count(start.value)} on` : ""}`),
    () => (hasBatches.value ? h("div", { class: "gap-below" }, batchTable(batches)) : null),
    () => (next.value === null ? null : h("button", { type: "button", class: "plain", disabled: isLoading.value, on: { click: () => load(/** @type {number} */ (next.peek())) } }, "Load more batches")),
    () => (indexes.value ? indexTables(indexes.value) : null),
  );
}

/** @param {Segment | null} segment */
function figures(segment) {
  if (!segment) return null;
  const records = segment.records === null ? "not counted" : count(segment.records);
  return keyValue([
    ["Offsets", segment.endOffset > segment.baseOffset ? `${count(segment.baseOffset)} to ${count(segment.endOffset - 1)}` : "none yet"],
    ["Size", `${bytes(segment.sizeBytes)} (${count(segment.sizeBytes)} bytes)`],
    ["Records", `${records}${segment.isCompacted ? ", after compaction" : ""}`],
    ["Time", segment.firstTimestamp < 0 ? "–" : h("span", { title: `${utc(segment.firstTimestamp)} to ${utc(segment.largestTimestamp)}` }, `${time(segment.firstTimestamp)} to ${time(segment.largestTimestamp)}`)],
    ["Indexes", `${count(segment.offsetIndex.entries)} offsets (${bytes(segment.offsetIndex.sizeBytes)}), ${count(segment.timeIndex.entries)} times (${bytes(segment.timeIndex.sizeBytes)})`],
    ["State", segment.isActive ? "active: records are appended to it" : segment.isCompacted ? "sealed and compacted" : "sealed: it never changes"],
  ]);
}

/**
 * The whole segment as a thin line with the part that is loaded; below it that part, batch by batch, with a mark for each index entry.
 * @param {Segment} segment
 * @param {Batch[]} batches
 * @param {Indexes | null} indexes
 */
function drawing(segment, batches, indexes) {
  const first = batches[0].position;
  const last = batches[batches.length - 1];
  const end = last.position + last.sizeBytes;
  const at = (/** @type {number} */ position) => ((position - first) / Math.max(1, end - first)) * WIDTH;
  const whole = Math.max(1, segment.sizeBytes);
  const marks = (indexes?.offsetIndex ?? []).filter((each) => each.position >= first && each.position < end);
  const about = `Batches of ${bytes(end - first)} of the segment's ${bytes(segment.sizeBytes)}, with ${marks.length} index entries`;
  return h(
    "figure",
    { class: "segment-drawing" },
    svg(
      "svg",
      { viewBox: `0 0 ${WIDTH} 64`, preserveAspectRatio: "none", role: "img", aria: { label: about } },
      svg("rect", { class: "map", x: 0, y: 0, width: WIDTH, height: 6 }),
      svg("rect", { class: "map-part", x: (first / whole) * WIDTH, y: 0, width: Math.max(2, ((end - first) / whole) * WIDTH), height: 6 }),
      batches.map((each) => svg("rect", { class: each.isControl ? "batch control" : each.isTransactional ? "batch transactional" : "batch", x: at(each.position), y: 14, width: Math.max(0.5, at(each.position + each.sizeBytes) - at(each.position) - 0.8), height: 30 }, svg("title", null, `Offsets ${each.baseOffset} to ${each.lastOffset}, position ${each.position}, ${bytes(each.sizeBytes)}`))),
      marks.map((each) => svg("rect", { class: "mark", x: at(each.position), y: 48, width: 1.5, height: 14 }, svg("title", null, `Index entry: offset ${each.offset} at position ${each.position}`))),
    ),
    h("figcaption", { class: "muted small" }, h("span", null, `Position ${count(first)}`), h("span", null, "Top: the part of the segment that is shown. Boxes: batches. Marks: entries of the offset index."), h("span", null, count(end))),
  );
}

/** @param {import("../../lib/signal.js").Signal<Batch[]>} rows */
function batchTable(rows) {
  return table({
    label: "Batches",
    rows,
    key: (row) => String(row.position),
    height: "320px",
    columns: [
      { key: "offsets", title: "Offsets", width: 150, mono: true, value: (row) => row.baseOffset, cell: (row) => (row.baseOffset === row.lastOffset ? count(row.baseOffset) : `${count(row.baseOffset)} – ${count(row.lastOffset)}`) },
      { key: "position", title: "Position", width: 110, align: "right", mono: true, value: (row) => row.position, cell: (row) => count(row.position) },
      { key: "size", title: "Size", width: 90, align: "right", value: (row) => row.sizeBytes, cell: (row) => bytes(row.sizeBytes) },
      { key: "records", title: "Records", width: 96, align: "right", value: (row) => row.records, cell: (row) => count(row.records) },
      { key: "codec", title: "Codec", width: 90, value: (row) => row.codec },
      { key: "time", title: "Newest time", width: 192, mono: true, value: (row) => row.maxTimestamp, cell: (row) => time(row.maxTimestamp), hint: (row) => `${utc(row.maxTimestamp)}, ${row.timestampType}` },
      { key: "producer", title: "Producer", width: 116, value: (row) => row.producerId, cell: (row) => (row.producerId === null ? "–" : `${row.producerId}, epoch ${row.producerEpoch}`) },
      { key: "epoch", title: "Epoch", width: 84, align: "right", about: "Leader epoch", value: (row) => row.leaderEpoch },
      { key: "kind", title: "Kind", width: 120, value: kind, cell: (row) => (kind(row) ? badge(kind(row), row.isControl ? "warn" : "info") : "") },
    ],
  });
}

/** @param {Batch} row */
const kind = (row) => (row.isControl ? "marker" : row.isTransactional ? "transactional" : "");

/** @param {Indexes} indexes */
function indexTables(indexes) {
  const offsets = indexes.offsetIndex.map((each, at) => ({ ...each, number: indexes.firstEntry + at }));
  const times = indexes.timeIndex.map((each, at) => ({ ...each, number: indexes.firstTimeEntry + at }));
  return h(
    "div",
    { class: "grid-2 gap-above" },
    h(
      "div",
      null,
      h("h3", null, `Offset index: ${count(indexes.entries)} entries`),
      table({
        label: "Offset index",
        rows: offsets,
        key: (row) => String(row.number),
        height: "240px",
        empty: "No entry: the segment is smaller than index.interval.bytes.",
        columns: [
          { key: "number", title: "Entry", width: 80, align: "right", value: (row) => row.number, cell: (row) => count(row.number) },
          { key: "offset", title: "Last offset", align: "right", mono: true, about: "Of the batch at this position", value: (row) => row.offset, cell: (row) => count(row.offset) },
          { key: "position", title: "Position", align: "right", mono: true, value: (row) => row.position, cell: (row) => count(row.position) },
        ],
      }),
    ),
    h(
      "div",
      null,
      h("h3", null, `Time index: ${count(indexes.timeEntries)} entries`),
      table({
        label: "Time index",
        rows: times,
        key: (row) => String(row.number),
        height: "240px",
        empty: "No entry yet.",
        columns: [
          { key: "number", title: "Entry", width: 80, align: "right", value: (row) => row.number, cell: (row) => count(row.number) },
          { key: "time", title: "Largest time so far", width: 200, mono: true, value: (row) => row.timestamp, cell: (row) => time(row.timestamp), hint: (row) => utc(row.timestamp) },
          { key: "offset", title: "Offset", align: "right", mono: true, value: (row) => row.offset, cell: (row) => count(row.offset) },
        ],
      }),
    ),
  );
}
