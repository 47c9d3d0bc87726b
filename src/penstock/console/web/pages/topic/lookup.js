// How the log finds a record by offset or by time, step by step: segment, index, scan, record.

import { api } from "../../lib/api.js";
import { h, svg } from "../../lib/dom.js";
import { field, numberInput, select, textInput } from "../../lib/form.js";
import { bytes, count, time } from "../../lib/format.js";
import { card, problem } from "../../lib/layout.js";
import { link, path, setQuery } from "../../lib/router.js";
import { onDispose, signal } from "../../lib/signal.js";

/** @typedef {import("./shapes.js").Lookup} Lookup */
/** @typedef {import("./shapes.js").PartitionLog} PartitionLog */
/** @typedef {import("./shapes.js").Probe} Probe */

const STEP_MS = 700;
const WIDTH = 1000; // units of the drawing
const OPTIONS_MAX = 1000; // partitions that are offered in a list

/**
 * @param {string} base path of the topic in the API
 * @param {string} topic
 * @param {import("../../lib/signal.js").Computed<number>} partitions
 * @param {import("../../lib/signal.js").Computed<number>} chosen
 * @param {import("../../lib/signal.js").Computed<PartitionLog[]>} logs
 */
export function lookupBox(base, topic, partitions, chosen, logs) {
  const by = signal("offset");
  const sought = signal("");
  const partition = signal(String(chosen.peek()));
  const error = signal("");
  const failure = signal(/** @type {unknown} */ (null));
  const found = signal(/** @type {{lookup: Lookup, partition: number} | null} */ (null));
  const isBusy = signal(false);

  async function find() {
    const text = sought.peek().trim();
    error.set("");
    failure.set(null);
    if (by.peek() === "offset" && !/^\d+$/.test(text)) error.set("Expected an offset: a number from 0 on.");
    if (by.peek() === "time" && !text) error.set("Expected a time, such as 2026-01-31T12:00:00Z.");
    if (error.peek()) return;
    isBusy.set(true);
    try {
      const number = Number(partition.peek());
      const lookup = await api.get(`${base}/partitions/${number}/lookup`, by.peek() === "offset" ? { offset: text } : { time: text });
      found.set({ lookup, partition: number });
    } catch (refused) {
      found.set(null);
      failure.set(refused);
    } finally {
      isBusy.set(false);
    }
  }

  const many = partitions.peek() > OPTIONS_MAX;
  const numbers = Array.from({ length: Math.min(partitions.peek(), OPTIONS_MAX) }, (_, at) => String(at));
  return card(
    "Find a record",
    h("p", { class: "muted small gap-below" }, "See how the log finds a record: which segment, which index entry, which batches are read."),
    h(
      "form",
      {
        class: "find-form",
        noValidate: true,
        on: {
          submit: (/** @type {Event} */ event) => {
            event.preventDefault();
            find();
          },
        },
      },
      field("Partition", many ? numberInput({ value: partition, min: 0 }) : select(numbers, { value: partition })),
      field("By", select([["offset", "offset"], ["time", "time"]], { value: by })),
      field("Offset or time", textInput({ value: sought, placeholder: "1234", class: "mono" }), { error }),
      h("button", { type: "submit", class: "primary", disabled: () => isBusy.value }, "Find"),
    ),
    () => (failure.value ? problem(failure.value) : null),
    () => (found.value ? steps(found.value.lookup, found.value.partition, topic, logs.peek()) : null),
  );
}

/**
 * @param {Lookup} lookup
 * @param {number} partition
 * @param {string} topic
 * @param {PartitionLog[]} logs
 */
function steps(lookup, partition, topic, logs) {
  if (lookup.segment === null) return h("p", { class: "gap-above", role: "status" }, lookup.message);
  const log = logs.find((each) => each.partition === partition);
  const all = [chooseSegment(lookup, log), lookup.by === "time" ? searchTimes(lookup) : null, lookup.by === "offset" || lookup.timeEntry ? searchOffsets(lookup) : null, scan(lookup), record(lookup, partition, topic)].filter((each) => each !== null);
  const isCalm = window.matchMedia("(prefers-reduced-motion: reduce)").matches;
  const shown = signal(isCalm ? all.length : 1);
  /** @type {ReturnType<typeof setInterval> | undefined} */
  let timer;
  const play = () => {
    clearInterval(timer);
    timer = setInterval(() => {
      shown.update((n) => n + 1);
      if (shown.peek() >= all.length) clearInterval(timer);
    }, STEP_MS);
  };
  if (!isCalm) play();
  onDispose(() => clearInterval(timer));
  return h(
    "div",
    { class: "gap-above" },
    h("ol", { class: "steps" }, all.map(([name, text, picture], at) => h("li", { class: () => (at < shown.value ? "step" : "step waiting"), aria: { hidden: () => (at < shown.value ? null : "true") } }, h("h3", null, name), h("p", null, text), picture))),
    h("div", { class: "row gap-above" }, h("strong", { role: "status" }, () => (shown.value >= all.length ? lookup.message : "")), h("span", { class: "spacer-x" }), () =>
      shown.value >= all.length
        ? [
            h("button", { type: "button", class: "plain small", on: { click: () => { shown.set(1); play(); } } }, "Show again"),
            h("button", { type: "button", class: "plain small", on: { click: () => setQuery({ partition, segment: lookup.segment, at: lookup.batch?.baseOffset ?? null }) } }, "Open the segment"),
          ]
        : h("button", { type: "button", class: "plain small", on: { click: () => shown.set(all.length) } }, "Show all"),
    ),
  );
}

/** @typedef {[string, import("../../lib/dom.js").Child, Node | null]} Step */

/** @param {Lookup} lookup @param {PartitionLog | undefined} log @returns {Step} */
function chooseSegment(lookup, log) {
  const place = `number ${count((lookup.segmentNumber ?? 0) + 1)} of ${count(lookup.segments)}`;
  const text =
    lookup.by === "offset"
      ? `The segment with the largest base offset that is not above ${count(lookup.sought)}: segment ${count(lookup.segment)}, ${place}. No file is opened for this; names are enough.`
      : `The first segment with a record from ${time(lookup.sought)} on: segment ${count(lookup.segment)}, ${place}.`;
  const strip = log ? h("div", { class: "mini-strip", aria: { hidden: "true" } }, log.segments.map((each) => h("span", { class: each.baseOffset === lookup.segment ? "chosen" : null, style: { "flex-grow": Math.max(1, each.sizeBytes) } }))) : null;
  return ["Choose the segment", text, strip];
}

/** @param {Lookup} lookup @returns {Step} */
function searchTimes(lookup) {
  const result = lookup.timeEntry ? `the entry ${time(lookup.timeEntry.timestamp)}, offset ${count(lookup.timeEntry.offset)}: nothing before it is as late` : "the time is before all entries, so the scan starts with the file";
  return ["Search the time index", `${comparisons(lookup.timeProbes)}: ${result}.`, probes(lookup.timeProbes, (key) => time(key))];
}

/** @param {Lookup} lookup @returns {Step} */
function searchOffsets(lookup) {
  const entry = lookup.indexEntry;
  const result = entry ? `the batch that ends with offset ${count(entry.offset)} begins at position ${count(entry.position)}` : "the offset is before all entries, so the scan starts with the file";
  return ["Search the offset index", `${comparisons(lookup.indexProbes)}: ${result}.`, probes(lookup.indexProbes, (key) => count(key))];
}

/** @param {Probe[]} all */
const comparisons = (all) => (all.length ? `A binary search compares ${all.length} of ${count(all[0].high + 1)} ${all[0].high === 0 ? "entry" : "entries"}` : "The index has no entry");

/**
 * Each comparison as a line: the entries that are left, the one in the middle, and where the search goes.
 * @param {Probe[]} all
 * @param {(key: number) => string} shown
 */
function probes(all, shown) {
  if (!all.length) return null;
  const entries = all[0].high + 1;
  const at = (/** @type {number} */ n) => (n / entries) * WIDTH;
  const ROW = 14;
  return h(
    "div",
    { class: "probes" },
    svg(
      "svg",
      { viewBox: `0 0 ${WIDTH} ${all.length * ROW}`, preserveAspectRatio: "none", aria: { hidden: "true" } },
      all.map((each, row) => [
        svg("rect", { class: "probe-all", x: 0, y: row * ROW + 6, width: WIDTH, height: 2 }),
        svg("rect", { class: "probe-range", x: at(each.low), y: row * ROW + 4, width: Math.max(3, at(each.high + 1) - at(each.low)), height: 6 }),
        svg("rect", { class: "probe-middle", x: at(each.entry), y: row * ROW + 1, width: Math.max(3, at(1)), height: 12 }),
      ]),
    ),
    h("ol", { class: "small mono" }, all.map((each) => h("li", null, `entry ${count(each.entry)}: ${shown(each.key)} is ${each.isAbove ? "above, go left" : "not above, go right"}`))),
  );
}

/** @param {Lookup} lookup @returns {Step} */
function scan(lookup) {
  const many = lookup.scannedBatches;
  const text = `Read batch headers from position ${count(lookup.scanFrom)} on: ${count(many)} ${many === 1 ? "batch" : "batches"}, ${bytes(lookup.scannedBytes)} of the segment's ${bytes(lookup.segmentBytes)}.`;
  const boxes = lookup.scanned.map((each) =>
    h("span", { class: each.isFound ? "scan-box found" : "scan-box", style: { "flex-grow": each.sizeBytes }, title: `Offsets ${each.baseOffset} to ${each.lastOffset}, position ${each.position}, ${bytes(each.sizeBytes)}` }, each.isFound || lookup.scanned.length <= 8 ? `${count(each.baseOffset)}–${count(each.lastOffset)}` : ""),
  );
  return ["Scan", text, h("div", { class: "scan-strip" }, boxes)];
}

/** @param {Lookup} lookup @param {number} partition @param {string} topic @returns {Step} */
function record(lookup, partition, topic) {
  const { record: one, batch } = lookup;
  if (!one || !batch) return ["Decode the batch", lookup.message, null];
  const size = (/** @type {number | null} */ n) => (n === null ? "null" : bytes(n));
  const text = [`Record ${count(one.number + 1)} of ${count(batch.records)}: offset ${count(one.offset)}, ${time(one.timestamp)}, key ${size(one.keyBytes)}, value ${size(one.valueBytes)}. `, link(`${path("topics", topic, "messages")}?partition=${partition}&offset=${one.offset}`, null, "Show the record")];
  return ["Decode the batch", text, null];
}
