// Transactions: open, all, and those that hang in a partition; each with an abort.

import { api, poll, whyNot } from "../lib/api.js";
import { confirm, confirmByName } from "../lib/dialog.js";
import { h } from "../lib/dom.js";
import { filterInput, select } from "../lib/form.js";
import { ago, count, duration, time, utc } from "../lib/format.js";
import { kept } from "../lib/kept.js";
import { actionButton, badge, card, cut, emptyState, keyValue, pageHeader, tabs } from "../lib/layout.js";
import { link, navigate, path, setQuery } from "../lib/router.js";
import { computed, signal } from "../lib/signal.js";
import { table } from "../lib/table.js";
import { toast } from "../lib/toast.js";

/** @typedef {{transactional_id: string, state: string, producer_id: number, coordinator: number, started_ms: number | null}} Listing */
/** @typedef {{transactional_id: string, state: string, producer_id: number, producer_epoch: number, coordinator: number, timeout_ms: number, started_ms: number | null, partitions: {topic: string, partition: number}[], is_open: boolean}} Description */
/** @typedef {{topic: string, partition: number, start_offset: number, producer_id: number, producer_epoch: number, last_timestamp_ms: number, transactional_id: string | null, is_in_doubt: boolean}} Hanging */

/** @param {Record<string, string>} params */
export const title = (params) => params.transaction ?? "Transactions";

const OPEN = "Ongoing,PrepareCommit,PrepareAbort";
const LISTED_MAX = 10_000;

/** @type {[string, string][]} */
const VIEWS = [
  ["open", "Open"],
  ["all", "All ids"],
  ["hanging", "Hanging"],
];
/** @type {[string, string][]} */
const AGES = [
  ["", "Any age"],
  ["60000", "Older than 1 min"],
  ["300000", "Older than 5 min"],
  ["900000", "Older than 15 min"],
  ["3600000", "Older than 1 h"],
];

/** @param {import("../lib/router.js").Context} ctx */
export function page({ params, query }) {
  if (params.transaction !== undefined) return one(params.transaction);
  const view = computed(() => (VIEWS.some(([id]) => id === query.value.view) ? query.value.view : "open"));
  return h(
    "div",
    null,
    pageHeader({ title: "Transactions", about: "What transactional producers write is hidden from read_committed consumers until it is committed." }),
    tabs(VIEWS, view, { href: (id) => (id === "open" ? "/transactions" : `/transactions?view=${id}`) }),
    () => (view.value === "hanging" ? hanging() : list(view.value === "open", query)),
  );
}

/** @param {string} state */
function stateBadge(state) {
  const tone = state === "Ongoing" ? "info" : state.startsWith("Prepare") ? "warn" : "neutral";
  return badge(state, tone);
}

/**
 * @param {boolean} isOpen
 * @param {import("../lib/signal.js").Computed<Record<string, string>>} query
 */
function list(isOpen, query) {
  const filter = signal("");
  const age = computed(() => (isOpen ? (query.value.older ?? "") : ""));
  const found = poll(
    /** @returns {Promise<{transactions: Listing[], next: string | null}>} */
    (signal) => api.get("/transactions", { state: isOpen ? OPEN : null, older_than_ms: age.value, limit: LISTED_MAX }, { signal }),
    5,
  );
  return h(
    "div",
    null,
    h(
      "div",
      { class: "toolbar" },
      filterInput(filter, { placeholder: "Filter by id or state" }),
      isOpen ? select(AGES, { value: age.peek(), aria: { label: "Age" }, onInput: (/** @type {string} */ text) => setQuery({ older: text }, { replace: true }) }) : null,
    ),
    kept(found, (value) =>
      table({
        label: "Transactions",
        rows: computed(() => value.value.transactions),
        key: (each) => each.transactional_id,
        filter,
        sort: { key: isOpen ? "started" : "id" },
        onOpen: (each) => navigate(path("transactions", each.transactional_id)),
        empty: isOpen
          ? emptyState("No open transactions", "Every transaction has been committed or aborted.")
          : emptyState("No transactional ids", "A producer with a transactional.id appears here once it has called initTransactions()."),
        columns: [
          { key: "id", title: "Transactional id", value: (each) => each.transactional_id, cell: (each) => link(path("transactions", each.transactional_id), null, each.transactional_id), hint: (each) => each.transactional_id },
          { key: "state", title: "State", width: 150, value: (each) => each.state, cell: (each) => stateBadge(each.state) },
          { key: "producer", title: "Producer id", width: 120, align: "right", mono: true, value: (each) => each.producer_id },
          { key: "coordinator", title: "Coordinator", width: 120, align: "right", value: (each) => each.coordinator, cell: (each) => link(path("cluster", "brokers", each.coordinator), null, `broker ${each.coordinator}`) },
          { key: "started", title: isOpen ? "Open since" : "Last began", width: 150, align: "right", value: (each) => each.started_ms, cell: (each) => ago(each.started_ms), hint: (each) => utc(each.started_ms) },
          { key: "abort", title: "Actions", width: 96, align: "right", sort: false, value: () => "", cell: (each) => (each.state === "Ongoing" ? actionButton("Abort…", () => askAbort(each.transactional_id, found.refresh), { kind: "danger small", why: whyNot }) : "") },
        ],
      }),
    ),
  );
}

/**
 * @param {string} id
 * @param {() => void} then
 */
function askAbort(id, then) {
  confirmByName({
    title: "Abort this transaction?",
    name: id,
    text: "Its records are dropped for read_committed consumers. The producer is fenced: its next call fails, and it has to start again.",
    label: "Abort",
    action: async () => {
      const done = await api.post(`${path("transactions", id)}/abort`);
      toast(`Aborted on ${count(done.partitions.length)} ${done.partitions.length === 1 ? "partition" : "partitions"}.`);
      then();
    },
  });
}

/** @param {string} id */
function one(id) {
  const found = poll(/** @returns {Promise<Description>} */ (signal) => api.get(path("transactions", id), null, { signal }), 3);
  const isOpen = () => found.value.value?.is_open;
  return h(
    "div",
    null,
    pageHeader({
      title: id,
      crumbs: [["Transactions", "/transactions"]],
      actions: [actionButton("Abort…", () => askAbort(id, found.refresh), { kind: "danger", why: () => whyNot() || (isOpen() ? "" : "There is no open transaction.") })],
    }),
    kept(found, (value) => [
      card(
        null,
        keyValue([
          ["State", () => stateBadge(value.value.state)],
          [
            "Began",
            () => {
              const { started_ms, is_open } = value.value;
              return started_ms === null ? "never" : h("span", { title: utc(started_ms) }, `${time(started_ms)}, ${ago(started_ms)}${is_open ? "" : " (the last one)"}`);
            },
          ],
          ["Timeout", () => `${duration(value.value.timeout_ms)}: then the coordinator aborts it`],
          ["Producer", () => h("span", { class: "mono" }, `${value.value.producer_id}, epoch ${value.value.producer_epoch}`)],
          ["Coordinator", () => link(path("cluster", "brokers", value.value.coordinator), null, `broker ${value.value.coordinator}`)],
        ]),
      ),
      card(
        "Partitions without a marker",
        table({
          label: "Partitions",
          rows: computed(() => value.value.partitions),
          key: (each) => `${each.topic}-${each.partition}`,
          empty: "None: all that was written is committed or aborted.",
          columns: [
            { key: "topic", title: "Topic", value: (each) => each.topic, cell: (each) => link(path("topics", each.topic), null, each.topic) },
            { key: "partition", title: "Partition", width: 120, align: "right", value: (each) => each.partition },
          ],
        }),
      ),
    ]),
  );
}

function hanging() {
  const found = poll(/** @returns {Promise<{transactions: Hanging[], unavailable: number[]}>} */ (signal) => api.get("/hanging-transactions", null, { signal }), 30);
  return h(
    "div",
    null,
    h("p", { class: "muted toolbar" }, "Transactions that are open in a partition and that no coordinator will end, without a record for 15 minutes. read_committed consumers cannot read past them."),
    kept(found, (value) => [
      () => (value.value.unavailable.length ? h("p", { class: "problem", role: "alert" }, `Brokers that did not answer: ${value.value.unavailable.join(", ")}. Transactions of partitions that they lead are missing.`) : null),
      table({
        label: "Hanging transactions",
        rows: computed(() => value.value.transactions),
        key: (each) => `${each.topic}-${each.partition}@${each.start_offset}`,
        empty: emptyState("Nothing hangs", "Every open transaction has a coordinator that will end it."),
        columns: [
          { key: "partition", title: "Partition", value: (each) => `${each.topic}-${each.partition}`, cell: (each) => [link(path("topics", each.topic), null, `${each.topic}-${each.partition}`), each.is_in_doubt ? [" ", badge("in doubt", "warn", "Its end may be lost with a damaged part of the log.")] : null] },
          { key: "start", title: "First offset", width: 120, align: "right", mono: true, value: (each) => each.start_offset, cell: (each) => count(each.start_offset) },
          { key: "producer", title: "Producer", width: 150, align: "right", mono: true, value: (each) => each.producer_id, cell: (each) => `${each.producer_id}, epoch ${each.producer_epoch}` },
          { key: "written", title: "Last written", width: 140, align: "right", value: (each) => each.last_timestamp_ms, cell: (each) => ago(each.last_timestamp_ms), hint: (each) => utc(each.last_timestamp_ms) },
          { key: "id", title: "Transactional id", width: 180, value: (each) => each.transactional_id, cell: (each) => (each.transactional_id === null ? h("span", { class: "muted" }, "unknown") : cut(each.transactional_id)) },
          { key: "abort", title: "Actions", width: 96, align: "right", sort: false, value: () => "", cell: (each) => actionButton("Abort…", () => askAbortIn(each, found.refresh), { kind: "danger small", why: whyNot }) },
        ],
      }),
    ]),
  );
}

/**
 * @param {Hanging} each
 * @param {() => void} then
 */
function askAbortIn(each, then) {
  const name = `${each.topic}-${each.partition}`;
  confirm({
    title: `Abort in ${name}?`,
    text: `An abort marker is written to ${name} for the transaction that begins at offset ${count(each.start_offset)}, without a coordinator.${each.is_in_doubt ? " Its end may be lost with a damaged part of the log: to abort it accepts the loss." : ""}`,
    label: "Abort",
    kind: "danger",
    action: async () => {
      await api.post(`${path("topics", each.topic, "partitions", each.partition)}/producers/abort`, { start_offset: each.start_offset });
      toast(`Aborted in ${name}.`);
      then();
    },
  });
}
