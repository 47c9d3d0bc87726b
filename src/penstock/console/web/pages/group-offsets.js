// The dialog in which committed offsets are edited: a rule for topics, other targets for single partitions, and a preview
// of what that does. What is applied is what was previewed: the same targets go to the same call.

import { api } from "../lib/api.js";
import { h } from "../lib/dom.js";
import { dialog } from "../lib/dialog.js";
import { field, numberInput, select, textInput } from "../lib/form.js";
import { count } from "../lib/format.js";
import { path } from "../lib/router.js";
import { effect, onDispose, signal } from "../lib/signal.js";
import { table } from "../lib/table.js";
import { toast } from "../lib/toast.js";

/** @typedef {{topic: string, to: string | number, partition?: number, shift_by?: number, from_group?: string}} Target */
/** @typedef {{topic: string, partition: number, committed: number | null, offset: number, log_start: number, end: number, skipped: number | null, read_again: number | null, limited: boolean}} Change */
/** @typedef {{group: string, dry_run: boolean, refused: string | null, partitions: Change[]}} Changed */
/** @typedef {{topic: string, partition: number, committed: number | null}} Row */

const PREVIEW_MS = 250; // after the last key
const OF_PARTITION = "An offset, earliest, latest, +10 or -10, a time such as 2026-01-31T12:00Z, or keep";

/** @type {[string, string][]} */
const RULES = [
  ["", "Only the partitions named below"],
  ["earliest", "Earliest"],
  ["latest", "Latest"],
  ["time", "Time"],
  ["offset", "Offset"],
  ["shift", "Shift by"],
  ["group", "Offsets of another group"],
];

/**
 * @param {string} group
 * @param {Row[]} partitions
 * @param {() => void} done
 */
export function editOffsets(group, partitions, done) {
  const url = `${path("groups", group)}/offsets`;
  const rows = signal(partitions.map(({ topic, partition, committed }) => ({ topic, partition, committed })));
  const topic = signal("");
  const rule = signal("latest");
  const value = signal("");
  const own = signal(/** @type {Map<string, string>} */ (new Map())); // by partition, as typed
  const preview = signal(/** @type {Map<string, Change>} */ (new Map()));
  const refused = signal("");
  const wrong = signal("");
  const isCurrent = signal(false);
  /** @type {Target[]} */
  let previewed = [];

  dialog({
    title: `Edit offsets of ${group}`,
    wide: true,
    body: () => {
      watch();
      return h("div", { class: "stack", on: { keydown: noSubmit } }, ruleFields(), addTopic(), partitionTable(), summary());
    },
    actions: [
      { label: "Cancel", kind: "plain" },
      { label: "Apply", kind: "primary", run: apply, disabled: () => !isCurrent.value || !!refused.value || !changes().length },
    ],
  });

  /** Enter in a field shows the preview; it must not apply. @param {KeyboardEvent} event */
  function noSubmit(event) {
    if (event.key === "Enter" && event.target instanceof HTMLInputElement) event.preventDefault();
  }

  function ruleFields() {
    const topics = [...new Set(rows.peek().map((each) => each.topic))];
    const input = () => {
      if (rule.value === "time") return field("Time", textInput({ type: "datetime-local", step: "1", value }), { hint: "In your time zone. The first record at or after it." });
      if (rule.value === "offset") return field("Offset", numberInput({ min: 0, value }));
      if (rule.value === "shift") return field("By", numberInput({ value, placeholder: "-100" }), { hint: "Negative to go back" });
      if (rule.value === "group") return field("Group", textInput({ value }));
      return null;
    };
    return h(
      "div",
      { class: "offset-rule" },
      field("Move", select([["", topics.length === 1 ? topics[0] : "All topics"], ...(topics.length > 1 ? topics.map((each) => /** @type {[string, string]} */ ([each, each])) : [])], { value: topic })),
      field("To", select(RULES, { value: rule, onInput: () => value.set("") })),
      input,
    );
  }

  function addTopic() {
    const name = signal("");
    const failed = signal("");
    const add = async () => {
      failed.set("");
      try {
        const found = await api.get(path("topics", name.peek()));
        const known = new Set(rows.peek().map(keyOf));
        const more = found.partitions.map((/** @type {any} */ each) => ({ topic: found.name, partition: each.partition, committed: null }));
        rows.update((now) => [...now, ...more.filter((/** @type {Row} */ each) => !known.has(keyOf(each)))]);
      } catch (error) {
        failed.set(error instanceof Error ? error.message : String(error));
      }
    };
    return h(
      "details",
      null,
      h("summary", { class: "small" }, "Add partitions of another topic"),
      h("div", { class: "row" }, field("Topic", textInput({ value: name }), { error: failed }), h("button", { type: "button", class: "plain", disabled: () => !name.value, on: { click: add } }, "Add")),
    );
  }

  function partitionTable() {
    return table({
      label: "New offsets",
      rows,
      key: keyOf,
      height: "38dvh",
      empty: "The group has no committed offsets. Add partitions of a topic.",
      columns: [
        { key: "partition", title: "Partition", value: keyOf, cell: (row) => h("span", { title: keyOf(row) }, keyOf(row)) },
        { key: "committed", title: "Committed", value: (row) => row.committed, cell: (row) => count(row.committed), align: "right", mono: true, width: 120 },
        {
          key: "own",
          title: "Its own target",
          about: OF_PARTITION,
          value: () => "",
          sort: false,
          width: 170,
          cell: (row) => {
            const input = textInput({ value: own.peek().get(keyOf(row)) ?? "", placeholder: "as above", class: "own-target", title: OF_PARTITION, aria: { label: `Target of ${keyOf(row)}` } });
            input.addEventListener("input", () => own.update((now) => changed(now, keyOf(row), input.value.trim())));
            return input;
          },
        },
        { key: "new", title: "New", value: (row) => preview.peek().get(keyOf(row))?.offset, cell: (row) => () => count(preview.value.get(keyOf(row))?.offset), align: "right", mono: true, width: 120, sort: false },
        { key: "effect", title: "Effect", value: () => "", sort: false, width: 190, cell: (row) => () => effectOf(preview.value.get(keyOf(row))) },
      ],
    });
  }

  function summary() {
    return h(
      "div",
      { class: "stack", role: "status" },
      () => (wrong.value ? h("p", { class: "field-error" }, wrong.value) : null),
      () => (refused.value ? h("p", { class: "field-error" }, `${refused.value.charAt(0).toUpperCase()}${refused.value.slice(1)}. Stop the consumers, or remove the members, and try again.`) : null),
      h("p", { class: "muted" }, () => {
        const all = changes();
        const skipped = all.reduce((sum, each) => sum + (each.skipped ?? 0), 0);
        const again = all.reduce((sum, each) => sum + (each.read_again ?? 0), 0);
        return isCurrent.value ? `${count(all.length)} of ${count(rows.value.length)} partitions change: ${count(skipped)} records are skipped, ${count(again)} are read again.` : "";
      }),
    );
  }

  function changes() {
    return [...preview.value.values()].filter((each) => each.offset !== each.committed);
  }

  /** Preview whatever is typed, a moment after the last key. */
  function watch() {
    /** @type {ReturnType<typeof setTimeout> | undefined} */
    let timer;
    let turn = 0;
    const run = async () => {
      const now = ++turn;
      try {
        const wanted = targets();
        const shown = /** @type {Changed} */ (wanted.length ? await api.post(url, wanted, { dry_run: true }) : { partitions: [], refused: null });
        if (now !== turn) return;
        previewed = wanted;
        wrong.set("");
        refused.set(shown.refused ?? "");
        preview.set(new Map(shown.partitions.map((each) => [keyOf(each), each])));
        isCurrent.set(true);
      } catch (error) {
        if (now !== turn) return;
        preview.set(new Map());
        refused.set("");
        wrong.set(error instanceof Error ? error.message : String(error));
      }
    };
    effect(() => {
      topic.value, rule.value, value.value, own.value, rows.value;
      isCurrent.set(false);
      clearTimeout(timer);
      timer = setTimeout(run, PREVIEW_MS);
    });
    onDispose(() => {
      turn += 1;
      clearTimeout(timer);
    });
  }

  /** @returns {Target[]} the rule for topics, then what single partitions have of their own, which counts */
  function targets() {
    const topics = topic.peek() ? [topic.peek()] : [...new Set(rows.peek().map((each) => each.topic))];
    const general = ruleTarget(rule.peek(), value.peek());
    const found = general ? topics.map((each) => /** @type {Target} */ ({ topic: each, ...general })) : [];
    for (const row of rows.peek()) {
      const text = own.peek().get(keyOf(row));
      if (text) found.push(/** @type {Target} */ ({ topic: row.topic, partition: row.partition, ...ownTarget(text) }));
    }
    return found;
  }

  async function apply() {
    const done_ = /** @type {Changed} */ (await api.post(url, previewed));
    toast(`Changed ${count(done_.partitions.length)} offsets of ${group}`);
    done();
  }
}

/** @param {{topic: string, partition: number}} row */
function keyOf(row) {
  return `${row.topic}-${row.partition}`;
}

/**
 * @param {Map<string, string>} map
 * @param {string} key
 * @param {string} text
 */
function changed(map, key, text) {
  const next = new Map(map);
  if (text) next.set(key, text);
  else next.delete(key);
  return next;
}

/**
 * @param {string} rule
 * @param {string} value
 * @returns {Omit<Target, "topic"> | null} null for no rule, or one that is not complete
 */
function ruleTarget(rule, value) {
  if (rule === "earliest" || rule === "latest") return { to: rule };
  if (!rule || !value.trim()) return null;
  if (rule === "time") return { to: new Date(value).toISOString() };
  if (rule === "offset") return { to: Number(value) };
  if (rule === "shift") return { to: "committed", shift_by: Number(value) };
  return { to: "committed", from_group: value.trim() };
}

/**
 * What is typed for one partition. The node says what is wrong with it.
 * @param {string} text
 * @returns {Omit<Target, "topic">}
 */
function ownTarget(text) {
  if (/^\d{1,16}$/.test(text)) return { to: Number(text) };
  if (/^[+-]\d{1,16}$/.test(text)) return { to: "committed", shift_by: Number(text) };
  return { to: text === "keep" ? "committed" : text };
}

/** @param {Change | undefined} change */
function effectOf(change) {
  if (!change) return "–";
  if (change.committed === null) return "sets the first offset";
  const limited = change.limited ? ", limited to the partition" : "";
  if (change.skipped) return `skips ${count(change.skipped)}${limited}`;
  if (change.read_again) return `reads ${count(change.read_again)} again${limited}`;
  return change.offset === change.committed ? "unchanged" : `moves to the start${limited}`;
}
