// What can be done to a topic as a whole: more partitions, deleted records, deletion.

import { api } from "../../lib/api.js";
import { confirmByName, dialog } from "../../lib/dialog.js";
import { h } from "../../lib/dom.js";
import { field, numberInput, select } from "../../lib/form.js";
import { count } from "../../lib/format.js";
import { navigate, path } from "../../lib/router.js";
import { computed, signal } from "../../lib/signal.js";
import { toast } from "../../lib/toast.js";

/** @typedef {import("./shapes.js").Topic} Topic */

const AT_ONCE = 8; // calls that are on their way together

/**
 * @param {Topic} topic
 * @param {() => void} done
 */
export function addPartitions(topic, done) {
  const now = topic.summary.partitions;
  const wanted = signal(String(now + 1));
  const error = computed(() => {
    const n = Number(wanted.value);
    return Number.isInteger(n) && n > now ? "" : `Expected a number above ${now}: partitions can be added, not removed.`;
  });
  dialog({
    title: "Add partitions",
    body: h(
      "div",
      { class: "stack" },
      h("p", null, `${topic.name} has ${count(now)} ${now === 1 ? "partition" : "partitions"}.`),
      field("Number of partitions", numberInput({ value: wanted, min: now + 1 }), { error }),
      h("p", { class: "muted small" }, "Producers choose a partition by the hash of the key and the number of partitions. Afterwards, records of a key may go to another partition than before."),
    ),
    actions: [
      { label: "Cancel", kind: "plain" },
      {
        label: "Add",
        kind: "primary",
        disabled: () => !!error.value,
        run: async () => {
          await api.patch(path("topics", topic.name), { partitions: Number(wanted.peek()) });
          toast(`${topic.name} has ${count(Number(wanted.peek()))} partitions.`);
          done();
        },
      },
    ],
  });
}

/**
 * @param {Topic} topic
 * @param {() => void} done
 */
export function deleteRecords(topic, done) {
  const from = signal("all");
  const how = signal("end");
  const typed = signal("");
  const before = computed(() => (how.value === "end" ? -1 : Number(typed.value)));
  const error = computed(() => (how.value === "end" || /^\d+$/.test(typed.value.trim()) ? "" : typed.value ? "Expected an offset: a number from 0 on." : ""));
  const chosen = computed(() => topic.partitions.filter((each) => from.value === "all" || String(each.partition) === from.value));
  const lost = computed(() => chosen.value.reduce((sum, each) => sum + lostIn(each, before.value), 0));
  /** @type {[string, string][]} */
  const options = [["all", "all partitions"], ...topic.partitions.map((each) => /** @type {[string, string]} */ ([String(each.partition), `partition ${each.partition}`]))];
  dialog({
    title: "Delete records",
    body: h(
      "div",
      { class: "stack" },
      h("p", null, "Records are deleted from the beginning of a partition up to an offset. This cannot be undone."),
      field("Of", select(options, { value: from })),
      field("Up to", select([["end", "the end: all records"], ["offset", "an offset"]], { value: how })),
      () => (how.value === "offset" ? field("Delete records before offset", numberInput({ value: typed, min: 0 }), { error }) : null),
      h("p", { class: "small", role: "status" }, () => (how.value === "offset" && !typed.value ? "" : `Deletes up to ${count(lost.value)} records.`)),
    ),
    actions: [
      { label: "Cancel", kind: "plain" },
      {
        label: "Delete records",
        kind: "danger",
        disabled: () => !!error.value || (how.value === "offset" && !typed.value),
        run: async () => {
          const todo = [...chosen.peek()];
          const work = async () => {
            for (let next = todo.pop(); next; next = todo.pop()) {
              await api.delete(path("topics", topic.name, "partitions", next.partition, "records"), undefined, { before: before.peek() });
            }
          };
          try {
            await Promise.all(Array.from({ length: AT_ONCE }, work));
          } finally {
            done();
          }
          toast("The records are deleted.");
        },
      },
    ],
  });
}

/**
 * @param {import("./shapes.js").Partition} partition
 * @param {number} before
 */
function lostIn({ log_start: start, high_watermark: end }, before) {
  if (start === null || end === null) return 0;
  return Math.max(0, (before < 0 ? end : Math.min(before, end)) - start);
}

/** @param {Topic} topic */
export function deleteTopic(topic) {
  const { messages } = topic.summary;
  confirmByName({
    title: "Delete topic",
    name: topic.name,
    text: `Deletes the topic with ${messages === null ? "all of its" : count(messages)} records on all brokers. This cannot be undone.`,
    label: "Delete topic",
    action: async () => {
      await api.delete(path("topics", topic.name));
      toast(`Topic ${topic.name} is deleted.`);
      navigate("/topics");
    },
  });
}
