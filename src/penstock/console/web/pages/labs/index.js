// The lab of the sparse index: how an offset is found.

import { api, poll } from "../../lib/api.js";
import { h } from "../../lib/dom.js";
import { field, form, numberInput } from "../../lib/form.js";
import { bytes, count } from "../../lib/format.js";
import { problem } from "../../lib/layout.js";
import { computed, signal } from "../../lib/signal.js";
import { createTopic, deleteTopics, inside, p, walk, write } from "./steps.js";

const TOPIC = "lab.index";
const PATH = `/api/architecture/topics/${TOPIC}/partitions/0`;
const BATCHES = 60;

/** @typedef {{text: string, low?: number, high?: number, tone: string}} Stop One step of a lookup, and the bytes that it looks at. */

export function content() {
  const log = poll(async (abort) => {
    const topic = await inside(TOPIC, abort);
    if (!topic) return null;
    const [batches, indexes] = await Promise.all([api.get(`${PATH}/batches`, { offset: 0, limit: 1000 }, { signal: abort }), api.get(`${PATH}/indexes`, { offset: 0, limit: 1000 }, { signal: abort })]);
    return { partition: topic.partitions[0], batches: batches.batches, entries: indexes.offsetIndex };
  }, 3);
  const look = (/** @type {Promise<any>} */ done) => done.then(() => log.refresh());
  const drawn = () => {
    const { value, error } = log.value;
    if (error) return problem(error);
    return value ? drawing(value, null) : h("p", { class: "muted" }, "There is no such topic yet.");
  };

  return walk("index", [
    {
      title: "A log to search",
      text: [
        p("A consumer asks for an offset. The log is a file of batches of different sizes, so the offset says nothing about the place in the file. Reading from the start would take longer with every message."),
        p(`This step makes a topic and writes ${count(BATCHES * 10)} messages in ${BATCHES} batches.`),
      ],
      action: {
        label: "Create the topic and write the messages",
        run: async () => {
          await createTopic(TOPIC, {});
          await look(write(TOPIC, BATCHES, { bytes: 100, from: log.peek().value?.partition.logEndOffset ?? 0 }));
          return "Written. Each box below is a batch.";
        },
      },
      picture: drawn,
    },
    {
      title: "One entry for every few batches",
      text: [
        p("Beside the log is a file with the ending .index. It has an entry of 8 bytes for about every 4,096 bytes of log (index.interval.bytes), not for every message: an offset, and the position of its batch. The marks below the log are its entries."),
        p("It is sparse on purpose: a gigabyte of log has only two megabytes of index."),
      ],
      picture: drawn,
    },
    {
      title: "Find an offset",
      text: [p("Choose an offset and follow the lookup: the segment, then a binary search in the index, then a short scan of batch headers.")],
      picture: lookup(log),
    },
    {
      title: "A dense index",
      text: [
        p("With ", h("code", null, "index.interval.bytes=0"), " there is an entry for every batch. A lookup scans no batch in vain, and the index is several times larger. Set it, write as many messages again, and compare the two halves of the log."),
      ],
      action: {
        label: "Set index.interval.bytes=0 and write more",
        run: async () => {
          await api.patch(`/topics/${TOPIC}/configs`, { configs: { "index.interval.bytes": 0 } });
          await look(write(TOPIC, BATCHES, { bytes: 100, from: BATCHES * 10 }));
          return "Written. Compare the marks of the first half with those of the second.";
        },
      },
      picture: drawn,
    },
    {
      title: "Clean up",
      text: [
        p("The index has no checksum and needs none: it only repeats what the log contains. Every entry that is used is compared with the batch that it points at, and a wrong or missing index is made again from the log."),
        p("In a terminal ", h("code", null, "penstock lab indexes"), " damages one and shows how that is noticed."),
      ],
      action: {
        label: "Delete the topic",
        sure: `${TOPIC} is deleted with its records.`,
        run: async () => {
          await look(deleteTopics(TOPIC));
          return "The topic is deleted.";
        },
      },
      picture: drawn,
    },
  ]);
}

/** @param {any} log */
function lookup(log) {
  const sought = signal("333");
  const answer = signal(/** @type {any} */ (null));
  const at = signal(0);
  const stops = computed(() => (answer.value ? stopsOf(answer.value) : []));
  const stop = computed(() => stops.value[at.value] ?? null);
  return h(
    "div",
    { class: "stack" },
    form({
      fields: h("div", { class: "lab-input" }, field("Offset", numberInput({ min: 0, value: sought }))),
      label: "Look up",
      onSubmit: async () => {
        answer.set(null);
        answer.set(await api.get(`${PATH}/lookup`, { offset: Number(sought.peek()) }));
        at.set(0);
      },
    }),
    () => {
      const { value } = log.value;
      return value ? drawing(value, stop.value) : h("p", { class: "muted" }, "There is no such topic yet: begin with step 1.");
    },
    () =>
      stops.value.length
        ? h(
            "div",
            { class: "stack" },
            h(
              "div",
              { class: "row" },
              h("button", { type: "button", class: "plain", disabled: () => at.value === 0, on: { click: () => at.update((n) => n - 1) } }, "Previous"),
              h("button", { type: "button", class: "plain", disabled: () => at.value >= stops.value.length - 1, on: { click: () => at.update((n) => n + 1) } }, "Next of the lookup"),
              h("span", { class: "muted" }, () => `${at.value + 1} of ${stops.value.length}`),
            ),
            h(
              "ol",
              { class: "lab-lookup", aria: { live: "polite" } },
              () => stops.value.slice(0, at.value + 1).map((each, index) => h("li", { aria: { current: index === at.value ? "step" : null } }, each.text)),
            ),
          )
        : null,
  );
}

/**
 * @param {any} found
 * @returns {Stop[]}
 */
function stopsOf(found) {
  /** @type {Stop[]} */
  const stops = [{ text: found.segments === 1 ? "There is one segment, so the offset can only be there." : `Of ${found.segments} segments, ${found.segment} is the largest name that is not above the offset.`, low: 0, high: found.segmentBytes, tone: "whole" }];
  for (const each of found.indexProbes) {
    stops.push({ text: `Index entry ${each.entry}: offset ${count(each.key)} at position ${count(each.value)}. That is ${each.isAbove ? "above" : "not above"} ${count(found.sought)}: go on in the ${each.isAbove ? "lower" : "upper"} half.`, low: each.value, high: each.value, tone: "probe" });
  }
  stops.push({ text: `The scan begins at position ${count(found.scanFrom)}${found.indexEntry ? `, that of the entry for offset ${count(found.indexEntry.offset)}` : ", the start of the segment: no entry is low enough"}.`, low: found.scanFrom, high: found.scanFrom, tone: "probe" });
  for (const each of found.scanned) {
    stops.push({ text: `The batch at ${count(each.position)} has the offsets ${count(each.baseOffset)} to ${count(each.lastOffset)}: ${each.isFound ? "this is it." : "go on with the next one."}`, low: each.position, high: each.position + each.sizeBytes, tone: each.isFound ? "found" : "scan" });
  }
  stops.push({ text: `${found.message} ${bytes(found.scannedBytes)} of ${bytes(found.segmentBytes)} were read.`, low: found.batch?.position ?? 0, high: found.batch ? found.batch.position + found.batch.sizeBytes : 0, tone: "found" });
  return stops;
}

/**
 * The log to scale, and the entries of its index below it.
 * @param {{partition: any, batches: any[], entries: any[]}} log
 * @param {Stop | null} stop
 */
function drawing({ partition, batches, entries }, stop) {
  const size = Math.max(batches.reduce((sum, each) => Math.max(sum, each.position + each.sizeBytes), 0), 1);
  const percent = (/** @type {number} */ position) => `${(100 * position) / size}%`;
  const isIn = (/** @type {any} */ each) => stop && stop.tone !== "probe" && each.position >= (stop.low ?? 0) && each.position < (stop.high ?? 0);
  return h(
    "div",
    { class: "lab-topic" },
    h("p", { class: "muted small" }, `${count(batches.length)} batches, ${bytes(partition.sizeBytes)} of log · ${count(entries.length)} entries, ${bytes(entries.length * 8)} of index`),
    h(
      "div",
      { class: "lab-log", role: "img", aria: { label: `A log of ${batches.length} batches with ${entries.length} index entries${stop ? `; ${stop.text}` : ""}` } },
      h("div", { class: "lab-batches" }, batches.map((each) => h("i", { class: isIn(each) ? stop?.tone : null, style: { "flex-grow": each.sizeBytes }, title: `offsets ${each.baseOffset} to ${each.lastOffset}, at ${each.position}` }))),
      h(
        "div",
        { class: "lab-entries" },
        entries.map((each) => h("i", { class: stop?.tone === "probe" && stop.low === each.position ? "probe" : null, style: { left: percent(each.position) }, title: `offset ${each.offset} at position ${each.position}` })),
        stop?.tone === "probe" ? h("b", { style: { left: percent(stop.low ?? 0) } }) : null,
      ),
    ),
  );
}
