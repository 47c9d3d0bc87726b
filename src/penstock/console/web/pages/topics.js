// The list of topics: found by name, sorted by anything, with a dialog that creates one.

import { api, poll, whyNot } from "../lib/api.js";
import { h } from "../lib/dom.js";
import { checkbox, filterInput } from "../lib/form.js";
import { bytes, compact, count, rate } from "../lib/format.js";
import { actionButton, badge, cut, emptyState, loading, pageHeader } from "../lib/layout.js";
import { link, navigate, path, setQuery } from "../lib/router.js";
import { computed, onDispose, signal } from "../lib/signal.js";
import { table } from "../lib/table.js";
import { createTopic } from "./topic/create.js";
import { retention } from "./topic/words.js";

export const title = "Topics";

const LISTED_MAX = 10_000; // the most that one call returns
const MANY = 1000; // with more topics, the list is asked for less often
const MANY_MS = 15_000;
const FIRST_RATES_MS = 2000;

/** @typedef {import("./topic/shapes.js").TopicRow} TopicRow */

/** @param {import("../lib/router.js").Context} ctx */
export function page(ctx) {
  const filter = signal(ctx.query.peek().q ?? "");
  const internal = signal(ctx.query.peek().internal === "true");

  /** @type {{key: string, at: number, list: any} | null} */
  let kept = null;
  const isCut = signal(false);
  const list = poll(async (stop) => {
    const query = { details: true, limit: LISTED_MAX, internal: internal.value, contains: isCut.value ? filter.value : null };
    const key = JSON.stringify(query);
    if (kept?.key === key && kept.list.topics.length > MANY && Date.now() - kept.at < MANY_MS) return kept.list;
    const found = await api.get("/topics", query, { signal: stop });
    kept = { key, at: Date.now(), list: found };
    if (found.total > LISTED_MAX) isCut.set(true);
    return found;
  }, 5);
  const refresh = () => {
    kept = null;
    list.refresh();
  };

  // Rates need two samples: soon after the first answer there are some.
  const timer = setTimeout(refresh, FIRST_RATES_MS);
  onDispose(() => clearTimeout(timer));

  const rows = computed(() => {
    const wanted = filter.value.trim().toLowerCase();
    /** @type {TopicRow[]} */
    const all = list.value.value?.topics ?? [];
    return wanted ? all.filter((each) => each.name.toLowerCase().includes(wanted)) : all;
  });
  const create = () => createTopic(refresh);
  const isReady = computed(() => list.value.value !== undefined);
  const isNone = computed(() => list.value.value?.total === 0 && !filter.value);

  return h(
    "div",
    null,
    pageHeader({ title, actions: [actionButton("Create topic", create, { kind: "primary", why: () => whyNot("create topics") })] }),
    h(
      "div",
      { class: "toolbar" },
      filterInput(filter, { placeholder: "Filter by name", onInput: (/** @type {string} */ text) => setQuery({ q: text }, { replace: true }), aria: { label: "Filter topics by name", keyshortcuts: "/" } }),
      h("label", { class: "row" }, checkbox({ checked: internal, onInput: (/** @type {boolean} */ isOn) => setQuery({ internal: isOn || null }, { replace: true }) }), "Internal topics"),
      h("span", { class: "spacer-x" }),
      h("span", { class: "muted", role: "status" }, () => summary(list.value.value, rows.value.length, !!filter.value)),
    ),
    () => unanswered(list.value.value?.unanswered),
    () => (isReady.value ? null : loading(list, () => null, { lines: 8 })),
    () => (isReady.value && list.value.error ? loading(list, () => null) : null),
    () => (isReady.value ? (isNone.value ? none(create) : topicTable(rows)) : null),
  );
}

/**
 * @param {any} list
 * @param {number} shown
 * @param {boolean} isFiltered
 */
function summary(list, shown, isFiltered) {
  if (!list) return "";
  const all = `${count(list.total)} ${list.total === 1 ? "topic" : "topics"}`;
  if (list.total > list.topics.length) return `${count(shown)} of ${all}; filter to see others`;
  return isFiltered ? `${count(shown)} of ${all}` : all;
}

/** @param {() => void} create */
function none(create) {
  const button = actionButton("Create topic", create, { kind: "primary", why: () => whyNot("create topics") });
  return emptyState("No topics yet", "A topic holds records in partitions. Create one here, or write to one with any Kafka client.", button);
}

/**
 * Which brokers are silent, above what depends on them.
 * @param {number[] | null | undefined} brokers
 */
export function unanswered(brokers) {
  if (!brokers?.length) return null;
  const names = brokers.length === 1 ? `Broker ${brokers[0]} does` : `Brokers ${brokers.join(", ")} do`;
  return h("div", { class: "notice", role: "status" }, `${names} not answer. What depends on ${brokers.length === 1 ? "it" : "them"} is unknown.`);
}

const unknown = () => h("span", { class: "muted" }, "unknown");

/** @param {import("../lib/signal.js").Computed<TopicRow[]>} rows */
function topicTable(rows) {
  return table({
    label: "Topics",
    rows,
    key: (row) => row.id,
    sort: { key: "name" },
    empty: "No topic has this in its name.",
    onOpen: (row) => navigate(path("topics", row.name)),
    columns: [
      { key: "name", title: "Topic", width: 244, value: (row) => row.name, cell: (row) => link(path("topics", row.name), { class: "cut", title: row.name }, row.name) },
      { key: "partitions", title: "Partitions", width: 98, align: "right", value: (row) => row.partitions, cell: (row) => count(row.partitions) },
      { key: "replicas", title: "Replicas", width: 90, align: "right", value: (row) => row.replication_factor },
      { key: "messages", title: "Records", width: 88, align: "right", about: "Offsets between log start and high watermark", value: (row) => row.messages, cell: (row) => (row.messages === null ? unknown() : compact(row.messages)), hint: (row) => count(row.messages) },
      { key: "size", title: "Size", width: 84, align: "right", about: "Of all replicas", value: (row) => row.size_bytes, cell: (row) => (row.size_bytes === null ? unknown() : bytes(row.size_bytes)) },
      { key: "bytes_in", title: "Bytes/s", width: 94, align: "right", about: "Written by clients, over the last seconds", value: (row) => row.bytes_in_per_second, cell: (row) => rate(row.bytes_in_per_second, "bytes") },
      { key: "messages_in", title: "Records/s", width: 98, align: "right", about: "Written by clients, over the last seconds", value: (row) => row.messages_in_per_second, cell: (row) => rate(row.messages_in_per_second) },
      { key: "retention", title: "Retention", width: 116, value: (row) => (row.retention_ms === -1 ? Infinity : row.retention_ms), cell: (row) => retention(row) },
      { key: "state", title: "State", width: 124, value: (row) => (row.offline ?? 0) * 1e6 + (row.under_replicated ?? 0), cell: state },
    ],
  });
}

/** @param {TopicRow} row */
function state(row) {
  if (row.offline) return badge(`${count(row.offline)} offline`, "bad", "Partitions without a leader");
  if (row.under_replicated) return badge(`${count(row.under_replicated)} out of sync`, "warn", "Partitions with a replica that is not in sync");
  return row.internal ? cut("internal", "muted") : badge("ok", "ok");
}
