// Partitions that move to other brokers: those on the way, and a plan for more.

import { api, poll, whyNot } from "../../lib/api.js";
import { confirm } from "../../lib/dialog.js";
import { h } from "../../lib/dom.js";
import { areRight, choice, entry, wholeNumber } from "../../lib/entry.js";
import { form } from "../../lib/form.js";
import { bytes, count, percent } from "../../lib/format.js";
import { kept } from "../../lib/kept.js";
import { actionButton, badge, card } from "../../lib/layout.js";
import { link, path } from "../../lib/router.js";
import { computed, signal } from "../../lib/signal.js";
import { table } from "../../lib/table.js";
import { toast } from "../../lib/toast.js";

/** @typedef {{topic: string, partition: number, replicas: number[], adding: number[], removing: number[], behind: number | null, progress: number | null}} Moving */
/** @typedef {{topic: string, partition: number, current: number[], replicas: number[], adding: number[], removing: number[], size_bytes: number | null}} Planned */
/** @typedef {{partitions: Planned[], copies: number, copied_bytes: number, unchanged: number}} Plan */
/** @typedef {{topic: string, partition: number, error: string | null}} Outcome */

const REPLICAS_MAX = 1000;

/** @param {number[]} ids */
const ids = (ids) => ids.join(", ") || "–";
/** @param {{topic: string, partition: number}} each */
const nameOf = (each) => `${each.topic}-${each.partition}`;
/** @param {number} n @param {string} one */
const counted = (n, one) => `${count(n)} ${n === 1 ? one : `${one}s`}`;

export function part() {
  const moving = poll(/** @returns {Promise<{partitions: Moving[]}>} */ (signal) => api.get("/reassignments", null, { signal }), 2);
  return h("div", null, inProgress(moving), planner(moving.refresh));
}

/** @param {ReturnType<typeof poll<{partitions: Moving[]}>>} moving */
function inProgress(moving) {
  return card(
    "On the way",
    kept(moving, (value) => {
      const rows = computed(() => value.value.partitions);
      return [
        h("div", { class: "toolbar", hidden: () => rows.value.length === 0 }, h("span", null, () => `${counted(rows.value.length, "partition")} moving`), h("span", { class: "spacer-x" }), actionButton("Cancel all…", () => askCancel(null, moving.refresh), { kind: "danger", why: whyNot })),
        table({
          label: "Partitions that move",
          rows,
          key: nameOf,
          height: "360px",
          empty: "No partition moves.",
          columns: [
            { key: "partition", title: "Partition", value: nameOf, cell: (each) => link(path("topics", each.topic), null, nameOf(each)) },
            { key: "adding", title: "Adding", width: 110, value: (each) => ids(each.adding) },
            { key: "removing", title: "Removing", width: 110, value: (each) => ids(each.removing) },
            { key: "behind", title: "Records behind", width: 146, align: "right", mono: true, value: (each) => each.behind, cell: (each) => count(each.behind) },
            { key: "progress", title: "Progress", width: 170, align: "right", value: (each) => each.progress, cell: (each) => (each.progress === null ? "–" : [h("progress", { value: each.progress, max: 1, aria: { label: `Progress of ${nameOf(each)}` } }), ` ${percent(each.progress)}`]) },
            { key: "cancel", title: "Actions", width: 96, align: "right", sort: false, value: () => "", cell: (each) => actionButton("Cancel…", () => askCancel(each, moving.refresh), { kind: "plain small", why: whyNot }) },
          ],
        }),
      ];
    }),
  );
}

/**
 * @param {Moving | null} one
 * @param {() => void} then
 */
function askCancel(one, then) {
  confirm({
    title: one ? `Cancel the move of ${nameOf(one)}?` : "Cancel all moves?",
    text: "Replicas that are being added are removed, and the old replicas stay.",
    label: "Cancel the move",
    kind: "danger",
    action: async () => {
      const done = await api.post("/reassignments/cancel", one ? { partitions: [{ topic: one.topic, partition: one.partition }] } : {});
      toast(`${counted(done.changed, "move")} cancelled.`);
      then();
    },
  });
}

/** @param {string} text */
const words = (text) => text.split(/[\s,]+/).filter(Boolean);

/** @param {string} text */
function brokerIds(text) {
  const wrong = words(text).find((each) => !/^\d{1,9}$/.test(each));
  return wrong === undefined ? "" : `“${wrong}” is no broker id: expected numbers such as 1, 2, 3.`;
}

/** @param {() => void} started */
function planner(started) {
  const plan = signal(/** @type {Plan | null} */ (null));
  const topics = entry("Topics", { name: "topics", hint: "Separated by commas. Empty: all topics." });
  const drain = entry("Brokers to empty", { name: "drain", hint: "They give up their replicas, before they are taken away.", check: brokerIds });
  const brokers = entry("Brokers to use", { name: "brokers", hint: "Empty: all that are up.", check: brokerIds });
  const factor = entry("Replication factor", { name: "replication_factor", type: "number", hint: "Empty: as it is.", check: wholeNumber(1, REPLICAS_MAX, { optional: true }), props: { min: 1 } });
  const noRacks = choice("Ignore racks");
  const entries = [topics, drain, brokers, factor];

  const make = async () => {
    plan.set(null);
    if (!areRight(entries)) return;
    const numbers = (/** @type {string} */ text) => (words(text).length ? words(text).map(Number) : null);
    const names = words(topics.value.peek());
    const body = {
      topics: names.length ? names : null,
      drain: numbers(drain.value.peek()),
      brokers: numbers(brokers.value.peek()),
      replication_factor: factor.value.peek().trim() ? Number(factor.value.peek()) : null,
      ignore_racks: noRacks.checked.peek(),
    };
    plan.set(await api.post("/reassignments/plan", body));
  };
  return card(
    "Plan moves",
    h("p", { class: "muted toolbar" }, "Replicas are spread evenly, over different racks, with as few moves as possible. A plan changes nothing."),
    form({ fields: [h("div", { class: "grid-2" }, entries.map((each) => each.node)), noRacks.node], onSubmit: make, label: "Plan" }),
    () => (plan.value ? planned(plan.value, started, () => plan.set(null)) : null),
  );
}

/**
 * @param {Plan} plan
 * @param {() => void} started
 * @param {() => void} close
 */
function planned(plan, started, close) {
  if (!plan.partitions.length) return h("p", { role: "status" }, badge("done", "ok"), ` Nothing has to move: ${counted(plan.unchanged, "partition")} ${plan.unchanged === 1 ? "stays as it is" : "stay as they are"}.`);
  const apply = () =>
    confirm({
      title: "Start these moves?",
      text: `${counted(plan.copies, "replica")} with ${bytes(plan.copied_bytes)} are copied between brokers, without a limit of bandwidth. The old replicas stay until the new ones are in sync.`,
      label: "Start",
      action: async () => {
        const partitions = plan.partitions.map(({ topic, partition, replicas }) => ({ topic, partition, replicas }));
        /** @type {{changed: number, partitions: Outcome[]}} */
        const done = await api.post("/reassignments", { partitions });
        const refused = done.partitions.filter((each) => each.error);
        toast(`${counted(done.changed, "partition")} started to move.`);
        if (refused.length) toast(`${counted(refused.length, "partition")} did not: ${nameOf(refused[0])}: ${refused[0].error}`, { kind: "error" });
        close();
        started();
      },
    });
  return h(
    "div",
    { class: "stack" },
    h(
      "div",
      { class: "toolbar", role: "status" },
      h("strong", null, `${counted(plan.partitions.length, "partition")} to change, ${counted(plan.copies, "replica")} to copy, ${bytes(plan.copied_bytes)}`),
      h("span", { class: "muted" }, `${counted(plan.unchanged, "partition")} unchanged`),
      h("span", { class: "spacer-x" }),
      actionButton("Start…", apply, { kind: "primary", why: whyNot }),
    ),
    table({
      label: "Plan",
      rows: plan.partitions,
      key: nameOf,
      height: "420px",
      columns: [
        { key: "partition", title: "Partition", value: nameOf, cell: (each) => link(path("topics", each.topic), null, nameOf(each)) },
        { key: "now", title: "Now", width: 120, value: (each) => ids(each.current) },
        { key: "then", title: "Then", width: 120, value: (each) => ids(each.replicas) },
        { key: "add", title: "Add", width: 90, value: (each) => ids(each.adding) },
        { key: "remove", title: "Remove", width: 90, value: (each) => ids(each.removing) },
        { key: "size", title: "Size", width: 100, align: "right", value: (each) => each.size_bytes, cell: (each) => (each.adding.length ? bytes(each.size_bytes) : "–") },
      ],
    }),
  );
}
