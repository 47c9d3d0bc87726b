// The lab of segments: the same messages in small and in large segments.

import { api, poll } from "../../lib/api.js";
import { h } from "../../lib/dom.js";
import { field, numberInput } from "../../lib/form.js";
import { bytes, count } from "../../lib/format.js";
import { problem } from "../../lib/layout.js";
import { computed, signal } from "../../lib/signal.js";
import { createTopic, deleteTopics, inside, p, walk, write } from "./steps.js";

const SMALL = "lab.segments.small";
const LARGE = "lab.segments.large";
const SMALL_BYTES = 10_000;

export function content() {
  const topics = poll(async (abort) => /** @type {Record<string, any>} */ ({ [SMALL]: await inside(SMALL, abort), [LARGE]: await inside(LARGE, abort) }), 3);
  const sought = signal("57");
  const look = (/** @type {Promise<any>} */ done) => done.then(() => topics.refresh());
  const both = (/** @type {(() => number | null) | undefined} */ marked) => () => {
    const { value, error } = topics.value;
    if (!value) return error ? problem(error) : null;
    return [SMALL, LARGE].map((name) => drawing(name, value[name], name === SMALL ? (marked?.() ?? null) : null));
  };
  const small = computed(() => topics.value.value?.[SMALL]?.partitions[0] ?? null);

  return walk("segments", [
    {
      title: "Two topics",
      text: [
        p("A log that grows for years cannot be one file: nothing could be deleted from its front. So it is split into segments, each a file of its own. Only the last one, the active segment, is written to."),
        p("This step makes two topics with one partition each. One has ", h("code", null, `segment.bytes=${SMALL_BYTES}`), ", the other the default of 1 GB."),
      ],
      action: {
        label: "Create both topics",
        run: async () => {
          await createTopic(SMALL, { configs: { "segment.bytes": SMALL_BYTES } });
          await look(createTopic(LARGE, {}));
          return "Both topics exist. Each log is one empty segment.";
        },
      },
      picture: both(undefined),
    },
    {
      title: "The same messages, twice",
      text: [
        p("Now write a hundred messages to each, in ten batches. A batch is never split: when the next one would take the active segment past segment.bytes, the segment is closed and a new one begins."),
      ],
      action: {
        label: "Write 100 messages to each",
        run: async () => {
          await write(SMALL, 10, { from: small.peek()?.logEndOffset ?? 0 });
          await look(write(LARGE, 10));
          return "Written. The widths below are the sizes of the files.";
        },
      },
      picture: both(undefined),
    },
    {
      title: "The name is the first offset",
      text: [
        p("A segment's files are named after the offset of its first record. So the segment that holds an offset is found without opening a file: it is the one with the largest name that is not above the offset."),
        p("Choose an offset, and see in which segment it is."),
      ],
      picture: [
        h("div", { class: "lab-input" }, field("Offset", numberInput({ min: 0, value: sought }))),
        h("p", { role: "status" }, () => found(small.value, Number(sought.value))),
        both(() => Number(sought.value)),
      ],
    },
    {
      title: "Deleting from the front",
      text: [
        p("A closed segment never changes, so it is deleted as a whole. Retention does that to the oldest ones, by age or by size. DeleteRecords does it at once, in two parts: the log start moves, so that nobody reads older records any more; the files go at the next check of retention, five minutes later at most."),
      ],
      action: {
        label: "Delete the records of the first two segments",
        sure: `The records of ${SMALL} below its third segment are deleted.`,
        run: async () => {
          const segments = small.peek()?.segments ?? [];
          if (segments.length < 3) throw new Error("There are not enough segments: write the messages of step 2 first.");
          const before = segments[2].baseOffset;
          await look(api.delete(`/topics/${SMALL}/partitions/0/records`, undefined, { before }));
          return `The log starts at offset ${count(before)} now.`;
        },
      },
      picture: both(undefined),
    },
    {
      title: "Clean up",
      text: [
        p("Small segments are for labs. Each has four files, which may need a descriptor and a sync: a busy topic with segment.bytes=10000 would have thousands of them."),
        p("In a terminal ", h("code", null, "penstock lab segments"), " shows the same with the files of a node of its own."),
      ],
      action: {
        label: "Delete both topics",
        sure: `${SMALL} and ${LARGE} are deleted with their records.`,
        run: async () => {
          await look(deleteTopics(SMALL, LARGE));
          return "Both topics are deleted.";
        },
      },
      picture: both(undefined),
    },
  ]);
}

/**
 * @param {any} partition
 * @param {number} offset
 */
function found(partition, offset) {
  if (!partition?.segments.length || !(offset >= 0)) return "";
  if (offset >= partition.logEndOffset) return `The log ends before offset ${count(offset)}: its last record is ${count(partition.logEndOffset - 1)}.`;
  const segment = holder(partition, offset);
  return `Offset ${count(offset)} is in ${segment.file}, which has the offsets ${count(segment.baseOffset)} to ${count(segment.endOffset - 1)}.`;
}

/**
 * @param {any} partition
 * @param {number} offset
 */
function holder(partition, offset) {
  return partition.segments.filter((/** @type {any} */ each) => each.baseOffset <= offset).at(-1);
}

/**
 * Segments as boxes as wide as their files are large.
 * @param {string} name
 * @param {any} topic
 * @param {number | null} marked An offset.
 */
function drawing(name, topic, marked) {
  const partition = topic?.partitions[0];
  if (!partition) return h("div", { class: "lab-topic" }, h("h3", { class: "mono" }, name), h("p", { class: "muted" }, "There is no such topic yet."));
  const holds = marked !== null && marked < partition.logEndOffset ? holder(partition, marked) : null;
  return h(
    "div",
    { class: "lab-topic" },
    h("h3", { class: "mono" }, name),
    h("p", { class: "muted small" }, `segment.bytes ${count(topic.segmentBytes)} · ${count(partition.segmentCount)} ${partition.segmentCount === 1 ? "segment" : "segments"} · ${bytes(partition.sizeBytes)} · offsets ${count(partition.logStartOffset)} to ${count(partition.logEndOffset)}`),
    h(
      "ol",
      { class: "lab-segments" },
      partition.segments.map((/** @type {any} */ each) =>
        h(
          "li",
          {
            class: ["lab-segment", each.isActive && "active", each.endOffset <= partition.logStartOffset && each.sizeBytes && "gone", each === holds && "marked"],
            style: { "flex-grow": Math.max(each.sizeBytes, 400) },
            title: `${each.file}: ${count(each.records ?? 0)} records, ${bytes(each.sizeBytes)}`,
          },
          h("span", { class: "mono" }, String(each.baseOffset)),
          h("span", { class: "small" }, each.isActive ? "active" : each.endOffset <= partition.logStartOffset ? "deleted soon" : bytes(each.sizeBytes)),
        ),
      ),
    ),
  );
}
