// Consumer groups: their state, members, topics, and how far behind they are in records and in time.

import { api, poll } from "../lib/api.js";
import { h } from "../lib/dom.js";
import { filterInput, select } from "../lib/form.js";
import { count, duration } from "../lib/format.js";
import { badge, cut, emptyState, pageHeader } from "../lib/layout.js";
import { link, navigate, path, setQuery } from "../lib/router.js";
import { computed, signal } from "../lib/signal.js";
import { table } from "../lib/table.js";
import { paced } from "./pacing.js";
import { whenReady } from "./when-ready.js";

export const title = "Groups";

/**
 * @typedef {object} Group
 * @property {string} group
 * @property {string} state
 * @property {string} type
 * @property {number} [coordinator]
 * @property {number} [members]
 * @property {string[]} [topics]
 * @property {number} [lag]
 * @property {number} [lag_seconds]
 * @property {number} [unknown]
 * @property {boolean} [spark]
 */
/** @typedef {{groups: Group[], next: string | null}} Listed */

const STATES = ["Stable", "Empty", "PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling"];
const POLL_S = 5;

/** @type {Record<string, import("../lib/layout.js").Tone>} */
const TONES = { Stable: "ok", Empty: "neutral", Dead: "neutral" };

/**
 * A group's state.
 * @param {string} state
 */
export function stateBadge(state) {
  return badge(state.replace(/(?<=[a-z])(?=[A-Z])/, " "), TONES[state] ?? "warn");
}

/** The mark of a group that a Spark query commits to. */
export function sparkBadge() {
  return badge("Spark", "info", "A Spark query commits the offsets of this group, for monitoring. It resumes from its checkpoint.");
}

/** @type {import("../lib/table.js").Column<Group>[]} */
const COLUMNS = [
  { key: "group", title: "Group", value: (row) => row.group, cell: (row) => h("span", { class: "row" }, link(path("groups", row.group), { class: "cut", title: row.group }, row.group), row.spark ? sparkBadge() : null) },
  { key: "state", title: "State", value: (row) => row.state, cell: (row) => stateBadge(row.state), width: 130 },
  {
    key: "lag",
    title: "Lag",
    about: "Records between the committed offsets and the ends of the partitions",
    value: (row) => row.lag,
    cell: (row) => count(row.lag) + (row.unknown ? " +?" : ""),
    hint: (row) => (row.unknown ? `Without ${row.unknown} partitions, whose lag is not known` : ""),
    align: "right",
    width: 104,
  },
  {
    key: "behind",
    title: "Behind",
    about: "How long ago the first record was written that is not consumed",
    value: (row) => row.lag_seconds,
    cell: (row) => behind(row.lag_seconds),
    align: "right",
    width: 104,
  },
  { key: "members", title: "Members", value: (row) => row.members, cell: (row) => count(row.members), align: "right", width: 100 },
  { key: "topics", title: "Topics", value: (row) => (row.topics ?? []).join(" "), cell: (row) => cut((row.topics ?? []).join(", ")), width: 170 },
  { key: "type", title: "Protocol", value: (row) => row.type, width: 92 },
  { key: "coordinator", title: "Coordinator", value: (row) => row.coordinator, cell: (row) => (row.coordinator === undefined ? "–" : link(path("cluster", "brokers", row.coordinator), null, String(row.coordinator))), align: "right", width: 112 },
];

/**
 * A lag in time: nothing is 0, not a dash.
 * @param {number | null | undefined} seconds
 */
export function behind(seconds) {
  return duration(typeof seconds === "number" ? Math.round(seconds * 1000) : null);
}

/** @param {import("../lib/router.js").Context} ctx */
export function page(ctx) {
  const filter = signal(ctx.query.peek().filter ?? "");
  const state = computed(() => ctx.query.value.state ?? "");
  const isPartial = signal(false); // there are more groups than fit: the node filters
  const asked = computed(() => (isPartial.value ? filter.value : ""));
  const listed = poll(paced((signal) => api.get("/groups", { lag: true, contains: asked.value, state: state.value }, { signal }), () => `${asked.value}\n${state.value}`), POLL_S);
  const rows = computed(() => listed.value.value?.groups ?? []);
  const isEmpty = computed(() => !rows.value.length && !filter.value && !state.value);
  const narrowed = (/** @type {string} */ text) => {
    filter.set(text);
    setQuery({ filter: text }, { replace: true });
  };

  return h(
    "div",
    null,
    pageHeader({ title }),
    h(
      "div",
      { class: "toolbar" },
      filterInput(filter, { placeholder: "Filter by name or topic", onInput: narrowed }),
      select([["", "All states"], ...STATES.map((each) => /** @type {[string, string]} */ ([each, each.replace(/(?<=[a-z])(?=[A-Z])/, " ")]))], {
        value: state,
        aria: { label: "State" },
        onInput: (/** @type {string} */ text) => setQuery({ state: text }),
      }),
      h("span", { class: "spacer-x" }),
      h("span", { class: "muted small", role: "status" }, () => about(listed.value.value)),
    ),
    whenReady([listed], () => [
      () => (isEmpty.value ? emptyState("No groups yet", "A group appears here when a consumer with a group.id commits an offset or joins.") : shown()),
    ]),
  );

  function shown() {
    return table({
      columns: COLUMNS,
      rows,
      key: (row) => row.group,
      label: "Groups",
      empty: "No group matches.",
      sort: { key: "lag", desc: true },
      filter,
      onOpen: (row) => navigate(path("groups", row.group)),
    });
  }

  /** @param {Listed | undefined} found */
  function about(found) {
    if (!found) return "";
    const lagging = found.groups.filter((each) => (each.lag ?? 0) > 0).length;
    const more = found.next ? `The first ${count(found.groups.length)} groups by name: filter to see others` : `${count(found.groups.length)} ${found.groups.length === 1 ? "group" : "groups"}`;
    if (!asked.peek()) queueMicrotask(() => isPartial.set(found.next !== null));
    return `${more}, ${count(lagging)} behind`;
  }
}
