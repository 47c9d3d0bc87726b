// The consumer groups that have offsets or assigned partitions in a topic.

import { api, poll } from "../../lib/api.js";
import { h } from "../../lib/dom.js";
import { count, duration } from "../../lib/format.js";
import { badge, emptyState, loading } from "../../lib/layout.js";
import { link, navigate, path } from "../../lib/router.js";
import { computed } from "../../lib/signal.js";
import { table } from "../../lib/table.js";

const PAGES_MAX = 10; // of a thousand groups each

/** @param {string} topic */
export function groupsTab(topic) {
  const polled = poll(async (stop) => {
    const found = [];
    /** @type {string | null} */
    let after = null;
    for (let at = 0; at < PAGES_MAX; at++) {
      const page = await api.get("/groups", { lag: true, limit: 1000, after }, { signal: stop });
      found.push(...page.groups.filter((/** @type {any} */ each) => (each.topics ?? []).includes(topic)));
      after = page.next;
      if (after === null) break;
    }
    return found;
  }, 10);
  const rows = computed(() => polled.value.value ?? []);
  const isEmpty = computed(() => rows.value.length === 0);
  const isReady = computed(() => polled.value.value !== undefined);
  return h("div", null, () => (isReady.value ? null : loading(polled, () => null)), () => (isReady.value ? (isEmpty.value ? emptyState("No group consumes this topic", "A group is listed here once it has committed an offset, or a member is assigned a partition.") : groupTable(rows)) : null));
}

/** @param {import("../../lib/signal.js").Computed<any[]>} rows */
function groupTable(rows) {
  return table({
    label: "Groups",
    rows,
    key: (row) => row.group,
    sort: { key: "group" },
    onOpen: (row) => navigate(path("groups", row.group)),
    columns: [
      { key: "group", title: "Group", value: (row) => row.group, cell: (row) => link(path("groups", row.group), { class: "cut", title: row.group }, row.group) },
      { key: "state", title: "State", width: 140, value: (row) => row.state, cell: (row) => badge(row.state, row.state === "Stable" ? "ok" : "neutral") },
      { key: "members", title: "Members", width: 100, align: "right", value: (row) => row.members, cell: (row) => count(row.members) },
      { key: "lag", title: "Lag", width: 120, align: "right", about: "Records that are not consumed, in all topics of the group", value: (row) => row.lag, cell: (row) => count(row.lag) },
      { key: "seconds", title: "Lag in time", width: 120, align: "right", value: (row) => row.lag_seconds, cell: (row) => duration(row.lag_seconds === undefined || row.lag_seconds === null ? null : row.lag_seconds * 1000) },
    ],
  });
}
