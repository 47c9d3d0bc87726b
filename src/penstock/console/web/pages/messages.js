// The records of a topic: newest first, from the beginning, from an offset or from a time, of one partition or all; live;
// one record in detail. What is shown is in the address: ?from=offset&offset=42&partition=0&record=0:42.

import { api, url, whyNot } from "../lib/api.js";
import { h } from "../lib/dom.js";
import { numberInput, select, textInput } from "../lib/form.js";
import { count, rate } from "../lib/format.js";
import { actionButton, emptyState, pageHeader, problem } from "../lib/layout.js";
import { path, setQuery } from "../lib/router.js";
import { computed, effect, onDispose, scope, signal, untracked } from "../lib/signal.js";
import { openProduce } from "./produce-dialog.js";
import { recordDetail } from "./record-detail.js";
import { FIELD_BYTES, placeOf, recordRow, recordTable } from "./record-table.js";
import { startTail } from "./record-tail.js";
import { openResend } from "./resend-dialog.js";

/** @typedef {import("./record-table.js").Row} Row */

const PAGE = 50;
const EMPTY_PAGES_MAX = 20; // pages without a record that are passed over before the reader is asked

/** @param {Record<string, string>} params */
export const title = (params) => `Messages of ${params.topic}`;

/**
 * As a page of its own, or `embedded` in the page of the topic.
 * @param {import("../lib/router.js").Context & {embedded?: boolean}} ctx
 */
export function page(ctx) {
  const { topic } = ctx.params;
  if (ctx.embedded) return messagesTab(ctx);
  return h("div", null, pageHeader({ title: topic, crumbs: [["Topics", "/topics"]] }), messagesTab(ctx));
}

/**
 * @param {import("../lib/router.js").Context} ctx
 * @returns {HTMLElement}
 */
export function messagesTab(ctx) {
  const { topic } = ctx.params;
  const rows = signal(/** @type {Row[]} */ ([]));
  const state = signal({ loading: true, next: /** @type {string | null} */ (null), error: /** @type {unknown} */ (null) });
  const chosen = signal(/** @type {Set<string>} */ (new Set()));
  const partitions = signal(/** @type {number[]} */ ([]));
  const again = signal(0);
  const live = signal(/** @type {ReturnType<typeof startTail> | null} */ (null));
  const asked = computed(() => JSON.stringify(startOf(ctx.query.value)));
  const open = computed(() => ctx.query.value.record ?? null);

  api.get(path("topics", topic)).then(
    (found) => partitions.set(found.partitions.map((/** @type {any} */ each) => each.partition)),
    () => {}, // the list says what is wrong
  );

  let turn = 0;
  /** @param {string | null} start */
  async function load(start) {
    const mine = ++turn;
    state.update((now) => ({ ...now, loading: true, error: null }));
    try {
      let next = start;
      /** @type {Row[]} */
      let found = [];
      for (let pages = 0; pages < EMPTY_PAGES_MAX && !found.length && (pages === 0 || next !== null); pages++) {
        const query = { ...queryOf(JSON.parse(asked.peek())), limit: PAGE, max_field_bytes: FIELD_BYTES, start: next };
        const answer = await api.get(path("topics", topic, "records"), query);
        if (mine !== turn) return;
        found = answer.records.map(recordRow);
        next = answer.next;
      }
      rows.set(start === null ? found : [...rows.peek(), ...found]);
      state.set({ loading: false, next, error: null });
    } catch (error) {
      if (mine === turn) state.set({ loading: false, next: state.peek().next, error });
    }
  }

  effect(() => {
    asked.value;
    again.value;
    const isLive = ctx.query.value.from === "live";
    untracked(() => {
      turn += 1;
      rows.set([]);
      chosen.set(new Set());
      if (!isLive) load(null);
      else state.set({ loading: false, next: null, error: null });
    });
    if (!isLive) return;
    const [tail, end] = scope(() => startTail(topic, ctx.query.peek().partition, rows));
    untracked(() => live.set(tail));
    onDispose(() => {
      end();
      live.set(null);
    });
  });

  const show = (/** @type {Row} */ row) => setQuery({ record: row.id });
  const list = recordTable({ rows, onOpen: show, shown: () => untracked(() => open.value), selectable: chosen, empty: "No records here." });
  effect(() => {
    const id = open.value;
    for (const each of list.querySelectorAll("tr.is-shown")) each.classList.remove("is-shown");
    if (id) list.querySelector(`tr[data-key="${CSS.escape(id)}"]`)?.classList.add("is-shown");
  });

  return h(
    "div",
    { class: () => ["messages", open.value && "with-detail"] },
    h(
      "div",
      { class: "messages-list" },
      toolbar(ctx, topic, partitions, () => again.update((n) => n + 1)),
      () => (state.value.error ? problem(state.value.error) : null),
      () => (live.value ? liveLine(live.value) : null),
      h("div", { hidden: () => !state.value.error && !state.value.loading && !rows.value.length && ctx.query.value.from !== "live" }, list),
      () => (!state.value.loading && !state.value.error && !rows.value.length && ctx.query.value.from !== "live" ? nothing(state.value.next, () => load(state.peek().next)) : null),
      h(
        "div",
        { class: "messages-foot" },
        h("span", { class: "muted small", role: "status" }, () => (state.value.loading ? "Loading…" : `${count(rows.value.length)} shown${state.value.next === null ? "" : ", there are more"}`)),
        h(
          "div",
          { class: "row" },
          actionButton("Send again…", () => openResend(topic, rows.peek().filter((row) => chosen.peek().has(row.id)), partitions.peek()), { why: () => whyNot("write") || (chosen.value.size ? "" : "Select records first.") }),
          downloads(topic, rows),
          h("button", { type: "button", class: "plain", hidden: () => state.value.next === null, disabled: () => state.value.loading, on: { click: () => load(state.peek().next) } }, "Load more"),
        ),
      ),
    ),
    () => {
      const place = placeOf(open.value ?? "");
      return place ? recordDetail({ topic, ...place }, () => setQuery({ record: null })) : null;
    },
  );
}

/**
 * The part of the query that says where the list starts.
 * @param {Record<string, string>} query
 */
function startOf(query) {
  const from = query.from ?? (query.offset ? "offset" : query.time ? "time" : "newest");
  return { from, partition: query.partition ?? null, offset: from === "offset" ? (query.offset ?? null) : null, time: from === "time" ? (query.time ?? null) : null };
}

/** @param {ReturnType<typeof startOf>} start */
function queryOf({ from, partition, offset, time }) {
  return { order: from === "newest" ? "newest" : "oldest", partitions: partition, offset, from: time };
}

/**
 * @param {string | null} next
 * @param {() => void} more
 */
function nothing(next, more) {
  if (next !== null) {
    return emptyState("No records yet", "Much of the log was read here without finding a record: transactions were aborted, or compaction removed them.", h("button", { type: "button", class: "plain", on: { click: more } }, "Go on"));
  }
  return emptyState("No records", "There are none from here on. Choose another start, or produce one.");
}

/** @param {ReturnType<typeof startTail>} tail */
function liveLine(tail) {
  const { state } = tail;
  return h(
    "div",
    { class: "row", role: "status" },
    h("span", { class: "live-dot", data: { paused: () => (state.value.isPaused ? "true" : null) } }),
    h("span", null, () => (state.value.isPaused ? `Paused${state.value.waiting ? `, ${count(state.value.waiting)} new` : ""}` : `Live, ${rate(Math.round(state.value.rate), "records")}`)),
    h("span", { class: "muted" }, () => (state.value.notShown ? `${count(state.value.notShown)} not shown: too many to read` : "")),
    h("span", { class: "field-error" }, () => state.value.problem),
    h("button", { type: "button", class: "plain small", on: { click: () => (state.peek().isPaused ? tail.resume() : tail.pause()) } }, () => (state.value.isPaused ? "Resume" : "Pause")),
  );
}

/**
 * @param {import("../lib/router.js").Context} ctx
 * @param {string} topic
 * @param {import("../lib/signal.js").Signal<number[]>} partitions
 * @param {() => void} refresh
 */
function toolbar(ctx, topic, partitions, refresh) {
  const start = computed(() => startOf(ctx.query.value));
  const offset = numberInput({ class: "offset", min: 0, placeholder: "Offset", aria: { label: "Offset" } });
  const moment = textInput({ class: "moment", placeholder: "2026-01-31T12:00:00Z", aria: { label: "Time" } });
  const wrong = signal("");
  const from = select([["newest", "Newest first"], ["oldest", "From the beginning"], ["offset", "From an offset"], ["time", "From a time"], ["live", "Live"]], { aria: { label: "Start" } });
  const partition = h("select", { aria: { label: "Partition" } }, h("option", { value: "" }, "All partitions"), () => partitions.value.map((each) => h("option", { value: String(each) }, `Partition ${each}`)));
  effect(() => {
    from.value = start.value.from;
    if (start.value.offset !== null) offset.value = start.value.offset;
    if (start.value.time !== null) moment.value = start.value.time;
  });
  effect(() => {
    partitions.value;
    partition.value = start.value.partition ?? "";
  });
  const chosenStart = signal(start.peek().from);
  effect(() => chosenStart.set(start.value.from));
  const go = () => {
    wrong.set("");
    const kind = from.value;
    if (kind === "offset" && !/^\d{1,18}$/.test(offset.value)) return void wrong.set("The offset is a number, such as 42.");
    const time = kind === "time" ? momentOf(moment.value) : null;
    if (kind === "time" && time === null) return void wrong.set("The time is ISO 8601, such as 2026-01-31T12:00, milliseconds since 1970, or an age such as -15m.");
    const same = JSON.stringify(start.peek());
    setQuery({ from: kind === "newest" ? null : kind, offset: kind === "offset" ? offset.value : null, time, record: null });
    if (JSON.stringify(start.peek()) === same) refresh();
    return undefined;
  };
  from.addEventListener("input", () => {
    chosenStart.set(from.value);
    if (!["offset", "time"].includes(from.value)) go();
    else (from.value === "offset" ? offset : moment).focus();
  });
  partition.addEventListener("input", () => setQuery({ partition: partition.value || null, record: null }));
  return h(
    "form",
    { class: "toolbar", noValidate: true, on: { submit: (/** @type {Event} */ event) => (event.preventDefault(), go()) } },
    from,
    h("span", { class: "field-inline", hidden: () => chosenStart.value !== "offset" }, offset),
    h("span", { class: "field-inline", hidden: () => chosenStart.value !== "time" }, moment),
    partition,
    h("button", { type: "submit", class: "plain" }, () => (["offset", "time"].includes(chosenStart.value) ? "Go" : "Refresh")),
    h("span", { class: "spacer-x" }),
    actionButton("Produce…", () => openProduce(topic, partitions.peek(), refresh), { kind: "primary", why: () => whyNot("write") }),
    h("span", { class: "field-error", role: "alert", hidden: () => !wrong.value }, () => wrong.value),
  );
}

const AGES = /** @type {Record<string, number>} */ ({ s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000 });

/**
 * A time for the API: local if it names no zone; "-15m" is a quarter of an hour ago.
 * @param {string} text
 * @returns {string | null}
 */
export function momentOf(text) {
  const found = text.trim();
  const age = /^-(\d{1,6})([smhd])$/.exec(found);
  if (age) return new Date(Date.now() - Number(age[1]) * AGES[age[2]]).toISOString();
  if (/^\d{1,15}$/.test(found)) return found;
  const then = new Date(/^\d{4}-\d\d-\d\d$/.test(found) ? `${found}T00:00` : found.replace(" ", "T"));
  return /^\d{4}-/.test(found) && !Number.isNaN(then.getTime()) ? then.toISOString() : null;
}

/**
 * What is shown, as a file: the offsets from the first to the last of each partition.
 * @param {string} topic
 * @param {import("../lib/signal.js").Signal<Row[]>} rows
 */
function downloads(topic, rows) {
  const ranges = computed(() => {
    /** @type {Map<number, [number, number]>} */
    const spans = new Map();
    for (const { partition, offset } of rows.value) {
      const [first, last] = spans.get(partition) ?? [offset, offset];
      spans.set(partition, [Math.min(first, offset), Math.max(last, offset)]);
    }
    return [...spans].map(([partition, [first, last]]) => `${partition}:${first}-${last + 1}`).join(",");
  });
  const file = (/** @type {string} */ format, /** @type {string} */ label) =>
    h("a", { class: "small", download: `${topic}.${format}`, hidden: () => !ranges.value, href: () => url(path("topics", topic, "records"), { format, ranges: ranges.value, decode: format === "parquet" ? "base64" : "text" }) }, label);
  return h("span", { class: "row" }, h("span", { class: "muted small", hidden: () => !ranges.value }, "Download"), file("ndjson", "NDJSON"), file("csv", "CSV"), file("parquet", "Parquet"));
}

