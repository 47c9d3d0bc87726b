// One consumer group: partitions with their lag, members, lag over time; offsets edited, members removed, deletion.

import { api, poll, whyNot } from "../lib/api.js";
import { h } from "../lib/dom.js";
import { confirm, confirmByName, dialog } from "../lib/dialog.js";
import { field, filterInput, select } from "../lib/form.js";
import { count } from "../lib/format.js";
import { actionButton, copyButton, cut, emptyState, pageHeader, stat, tabs } from "../lib/layout.js";
import { link, location, navigate, path } from "../lib/router.js";
import { computed, signal } from "../lib/signal.js";
import { table } from "../lib/table.js";
import { toast } from "../lib/toast.js";
import { lagCharts } from "./group-lag.js";
import { editOffsets } from "./group-offsets.js";
import { behind, sparkBadge, stateBadge } from "./groups.js";
import { paced } from "./pacing.js";
import { whenReady } from "./when-ready.js";

export const title = (/** @type {Record<string, string>} */ params) => params.group ?? "Group";
export const keeps = ["tab"];

/** @typedef {{member_id: string, instance_id: string | null, client_id: string, host: string, subscribed: string[], assignments: Record<string, number[]>}} Member */
/** @typedef {{group: string, state: string, type: string, protocol: string, epoch: number | null, members: Member[], coordinator: number | null}} Group */
/** @typedef {{topic: string, partition: number, committed: number | null, end: number | null, lag: number | null, lag_seconds: number | null, member_id: string | null}} Partition */
/** @typedef {{group: string, state: string, lag: number, lag_seconds: number, partitions: Partition[], spark: boolean}} Lag */

const POLL_S = 3;

/** @param {import("../lib/router.js").Context} ctx */
export function page(ctx) {
  const group = ctx.params.group;
  const base = path("groups", group);
  const described = poll((signal) => api.get(base, null, { signal }), POLL_S);
  const askLag = paced((signal) => api.get(`${base}/lag`, null, { signal }));
  const lag = poll(askLag, POLL_S);
  const members = computed(() => /** @type {Member[]} */ (described.value.value?.members ?? []));
  const partitions = computed(() => /** @type {Partition[]} */ (lag.value.value?.partitions ?? []));
  const topics = computed(() => [...new Set(partitions.value.map((each) => each.topic))]);
  const tab = computed(() => location.value.params.tab ?? "partitions");
  const refresh = () => {
    askLag.hurry();
    described.refresh();
    lag.refresh();
  };
  const busy = () => whyNot("groups") || (members.value.length ? "The group has members. Only an empty group can be deleted." : "");

  return h(
    "div",
    null,
    pageHeader({
      title: group,
      crumbs: [["Groups", "/groups"]],
      actions: [
        actionButton("Edit offsets", () => editOffsets(group, partitions.peek(), refresh), { kind: "primary", why: () => whyNot("groups") }),
        actionButton("Delete offsets", () => deleteOffsets(base, topics.peek(), refresh), { why: () => whyNot("groups") || (topics.value.length ? "" : "The group has no committed offsets.") }),
        actionButton("Delete group", () => deleteGroup(base, group), { kind: "danger", why: busy }),
      ],
    }),
    whenReady([described, lag], () => [
      stats(),
      lagCharts(group, lag),
      tabs([["partitions", "Partitions"], ["members", "Members"]], tab, { href: (id) => (id === "partitions" ? base : `${base}/${id}`) }),
      () => (tab.value === "members" ? memberTable() : partitionTable()),
    ]),
  );

  function stats() {
    const now = () => /** @type {Group} */ (described.value.value);
    const lagged = () => /** @type {Lag} */ (lag.value.value);
    return h(
      "div",
      { class: "stats" },
      stat("State", () => h("span", { class: "row" }, stateBadge(now().state), lagged().spark ? sparkBadge() : null)),
      stat("Members", () => count(members.value.length)),
      stat("Lag", () => count(lagged().lag), { hint: "records" }),
      stat("Behind", () => behind(lagged().lag_seconds), { hint: "oldest unread record" }),
      stat("Protocol", () => now().type, { hint: h("span", null, () => [now().protocol, now().epoch === null ? "" : `epoch ${now().epoch}`].filter(Boolean).join(", ")) }),
      stat("Coordinator", () => (now().coordinator === null ? "none" : `node ${now().coordinator}`)),
    );
  }

  function partitionTable() {
    const clients = computed(() => new Map(members.value.map((each) => [each.member_id, each.client_id])));
    const filter = signal("");
    return h("div", null, h("div", { class: "toolbar" }, filterInput(filter, { placeholder: "Filter partitions" })), table({
      label: "Partitions",
      rows: partitions,
      key: (row) => `${row.topic}-${row.partition}`,
      filter,
      empty: "The group has no committed offsets, and its members no partitions.",
      columns: [
        { key: "topic", title: "Topic", value: (row) => row.topic, cell: (row) => link(path("topics", row.topic), { title: row.topic }, row.topic) },
        { key: "partition", title: "Partition", value: (row) => row.partition, align: "right", width: 96 },
        { key: "committed", title: "Committed", value: (row) => row.committed, cell: (row) => count(row.committed), align: "right", mono: true, width: 130 },
        { key: "end", title: "End", value: (row) => row.end, cell: (row) => count(row.end), align: "right", mono: true, width: 130 },
        { key: "lag", title: "Lag", value: (row) => row.lag, cell: (row) => count(row.lag), align: "right", width: 110 },
        { key: "behind", title: "Behind", value: (row) => row.lag_seconds, cell: (row) => behind(row.lag_seconds), align: "right", width: 120 },
        { key: "member", title: "Member", value: (row) => clients.peek().get(row.member_id ?? "") ?? "", cell: (row) => () => cut(clients.value.get(row.member_id ?? "") ?? "–"), hint: (row) => row.member_id ?? "" },
      ],
    }));
  }

  function memberTable() {
    return table({
      label: "Members",
      rows: members,
      key: (row) => row.member_id,
      empty: emptyState("No members", "The group has no live consumers. Its committed offsets can be edited."),
      columns: [
        { key: "client", title: "Client", value: (row) => row.client_id, width: 160 },
        { key: "host", title: "Host", value: (row) => row.host.replace(/^\//, ""), width: 140 },
        { key: "id", title: "Member id", value: (row) => row.member_id, cell: (row) => cut(row.member_id, "mono") },
        { key: "instance", title: "Instance", value: (row) => row.instance_id ?? "", cell: (row) => row.instance_id ?? "–", width: 110 },
        { key: "assigned", title: "Partitions", value: (row) => partitionCount(row), align: "right", width: 96 },
        { key: "assignment", title: "Assignment", value: assignment, cell: (row) => cut(assignment(row)) },
        {
          key: "actions",
          title: "",
          value: () => "",
          sort: false,
          align: "right",
          width: 160,
          cell: (row) => h("span", { class: "row" }, copyButton(row.member_id, "Copy id"), actionButton("Remove", () => removeMember(base, row, refresh), { kind: "plain small", why: () => whyNot("groups") })),
        },
      ],
    });
  }
}

/** @param {Member} member */
function partitionCount(member) {
  return Object.values(member.assignments).reduce((sum, each) => sum + each.length, 0);
}

/** @param {Member} member */
function assignment(member) {
  return Object.entries(member.assignments)
    .map(([topic, numbers]) => `${topic}: ${numbers.join(", ")}`)
    .join("; ");
}

/**
 * @param {string} base
 * @param {Member} member
 * @param {() => void} refresh
 */
function removeMember(base, member, refresh) {
  confirm({
    title: "Remove member",
    text: `${member.client_id} (${member.member_id}) leaves the group, and its partitions are assigned to others. If the client still runs, it notices with its next heartbeat and joins again.`,
    label: "Remove",
    kind: "danger",
    action: async () => {
      await api.delete(`${base}/members/${encodeURIComponent(member.member_id)}`);
      toast(`Removed ${member.client_id}`);
      refresh();
    },
  });
}

/**
 * @param {string} base
 * @param {string[]} topics
 * @param {() => void} refresh
 */
function deleteOffsets(base, topics, refresh) {
  const topic = signal(topics[0]);
  dialog({
    title: "Delete offsets",
    body: h("div", { class: "stack" }, h("p", null, "The group forgets how far it has read in a topic. Its consumers begin there as auto.offset.reset says."), field("Topic", select(topics, { value: topic }))),
    actions: [
      { label: "Cancel", kind: "plain" },
      {
        label: "Delete offsets",
        kind: "danger",
        run: async () => {
          await api.delete(`${base}/offsets`, undefined, { topic: topic.peek() });
          toast(`Deleted the offsets in ${topic.peek()}`);
          refresh();
        },
      },
    ],
  });
}

/**
 * @param {string} base
 * @param {string} group
 */
function deleteGroup(base, group) {
  confirmByName({
    title: "Delete group",
    name: group,
    text: "The group is deleted with all of its committed offsets.",
    action: async () => {
      await api.delete(base);
      toast(`Deleted ${group}`);
      navigate("/groups");
    },
  });
}
