// Search the records of a topic: by text, regular expression or CEL expression, with results as they are found, a
// progress bar that is true, and a cancel that stops the work.

import { ApiError, api, whyNot } from "../lib/api.js";
import { h } from "../lib/dom.js";
import { field, numberInput, select, textInput } from "../lib/form.js";
import { bytes, count, duration, percent, rate } from "../lib/format.js";
import { actionButton, badge, card, emptyState, pageHeader, problem } from "../lib/layout.js";
import { link, navigate, path, setQuery } from "../lib/router.js";
import { computed, effect, onDispose, signal, untracked } from "../lib/signal.js";
import { toast } from "../lib/toast.js";
import { momentOf } from "./messages.js";
import { recordDetail } from "./record-detail.js";
import { FIELD_BYTES, placeOf, recordRow, recordTable } from "./record-table.js";

/** @typedef {import("./record-table.js").Row} Row */
/** @typedef {{state: "idle" | "running" | "over", bytes: {searched: number, total: number, skipped: number}, results: number, startedMs: number, tookMs: number, end: any, error: unknown}} Run */

const TOPICS_LISTED = 500;
const DRAW_MS = 200;
const FIELDS = /** @type {const} */ (["contains", "regex", "where", "in", "partition", "offset", "until", "from", "to", "limit", "isolation"]);
const IDLE = /** @type {Run} */ ({ state: "idle", bytes: { searched: 0, total: 0, skipped: 0 }, results: 0, startedMs: 0, tookMs: 0, end: null, error: null });

/** @param {Record<string, string>} params */
export const title = (params) => (params.topic ? `Search ${params.topic}` : "Search");

/**
 * As a page of its own, or `embedded` in the page of the topic.
 * @param {import("../lib/router.js").Context & {embedded?: boolean}} ctx
 */
export function page(ctx) {
  const { topic } = ctx.params;
  if (ctx.embedded) return searchTab(ctx);
  if (topic) return h("div", null, pageHeader({ title: topic, crumbs: [["Topics", "/topics"]] }), searchTab(ctx));
  return h("div", null, pageHeader({ title: "Search", about: "Choose a topic to search in." }), chooseTopic());
}

function chooseTopic() {
  const names = signal(/** @type {string[] | null} */ (null));
  const wrong = signal(/** @type {unknown} */ (null));
  const typed = signal("");
  api.get("/topics", { limit: TOPICS_LISTED }).then((found) => names.set(found.topics.map((/** @type {any} */ each) => each.name)), (error) => wrong.set(error));
  const go = () => typed.peek().trim() && navigate(path("topics", typed.peek().trim(), "search"));
  return h(
    "div",
    { class: "stack" },
    () => (wrong.value ? problem(wrong.value) : null),
    h("form", { class: "toolbar", on: { submit: (/** @type {Event} */ event) => (event.preventDefault(), go()) } }, textInput({ value: typed, class: "filter", placeholder: "Topic", aria: { label: "Topic" }, data: { filter: "true" } }), h("button", { type: "submit", class: "primary" }, "Search it")),
    () => {
      const found = (names.value ?? []).filter((each) => each.toLowerCase().includes(typed.value.trim().toLowerCase()));
      if (names.value && !names.value.length) return emptyState("No topics", "Create a topic and write records first.");
      return h("ul", { class: "link-list" }, found.slice(0, 50).map((each) => h("li", null, link(path("topics", each, "search"), null, each))));
    },
  );
}

/**
 * @param {import("../lib/router.js").Context} ctx
 * @returns {HTMLElement}
 */
export function searchTab(ctx) {
  const { topic } = ctx.params;
  const rows = signal(/** @type {Row[]} */ ([]));
  const run = signal(IDLE);
  const open = computed(() => ctx.query.value.record ?? null);
  /** @type {AbortController | null} */
  let control = null;
  onDispose(() => control?.abort());
  const { form, errors, asked } = searchForm(ctx, () => start(), () => cancel(), run);

  /** @param {boolean} [isNew] Not the search of the address. */
  async function start(isNew = true) {
    const query = asked();
    if (!query) return;
    if (isNew) setQuery({ ...Object.fromEntries(FIELDS.map((name) => [name, query.typed[name] ?? null])), record: null });
    control?.abort();
    const mine = (control = new AbortController());
    rows.set([]);
    /** @type {Row[]} */
    const found = [];
    const startedMs = performance.now();
    let now = { ...IDLE, state: /** @type {Run["state"]} */ ("running"), startedMs };
    run.set(now);
    const draw = () => {
      if (mine !== control) return;
      if (rows.peek().length !== found.length) rows.set([...found]);
      run.set({ ...now, tookMs: performance.now() - startedMs });
    };
    const timer = setInterval(draw, DRAW_MS);
    try {
      await api.lines(
        path("topics", topic, "search"),
        { ...query.sent, decode: "base64", max_field_bytes: FIELD_BYTES },
        (line) => {
          if (line.type === "result") found.push(recordRow({ ...line.record, cut: line.cut }));
          else now = { ...now, bytes: line.bytes, results: line.results, end: line.type === "end" ? line : null };
        },
        { signal: mine.signal },
      );
      now = { ...now, state: "over" };
    } catch (error) {
      const name = mine.signal.aborted ? null : fieldOf(error);
      if (name) errors[name].set(/** @type {Error} */ (error).message);
      now = { ...now, state: "over", error: mine.signal.aborted || name ? null : error, end: mine.signal.aborted ? { reason: "cancelled" } : null };
      if (name) now = { ...IDLE };
    } finally {
      clearInterval(timer);
      draw();
    }
  }
  const cancel = () => control?.abort();

  // An address with a condition is a search that somebody shares.
  const { contains, regex, where } = ctx.query.peek();
  if (contains || regex || where) setTimeout(() => start(false)); // once the page is shown

  return h(
    "div",
    { class: () => ["messages", open.value && "with-detail"] },
    h(
      "div",
      { class: "messages-list" },
      card(null, form),
      () => (run.value.error ? problem(run.value.error) : null),
      h("div", { hidden: () => run.value.state === "idle" }, progress(run), recordTable({ rows, label: "Results", onOpen: (row) => setQuery({ record: row.id }), shown: () => untracked(() => open.value), empty: h("span", null, () => (run.value.state === "running" ? "Nothing found so far." : "Nothing found.")) })),
    ),
    () => {
      const place = placeOf(open.value ?? "");
      return place ? recordDetail({ topic, ...place }, () => setQuery({ record: null })) : null;
    },
  );
}

/**
 * Which field an error is about.
 * @param {unknown} error
 * @returns {"contains" | "regex" | "where" | "partition" | "offset" | "from" | null}
 */
function fieldOf(error) {
  if (!(error instanceof ApiError) || ![400, 404].includes(error.status)) return null;
  const word = /^\W*(contains|regex|where|partition|offset|from|to|nothing)\b/i.exec(error.message)?.[1].toLowerCase();
  if (word === "nothing") return "contains";
  if (word === "to") return "from";
  if (error.status === 404 && /partition/.test(error.message)) return "partition";
  return /** @type {any} */ (word ?? null);
}

/**
 * @param {import("../lib/router.js").Context} ctx
 * @param {() => void} onStart
 * @param {() => void} onCancel
 * @param {import("../lib/signal.js").Signal<Run>} run
 */
function searchForm(ctx, onStart, onCancel, run) {
  const given = ctx.query.peek();
  const errors = { contains: signal(""), regex: signal(""), where: signal(""), partition: signal(""), offset: signal(""), from: signal("") };
  const inputs = {
    contains: textInput({ value: given.contains ?? "", data: { filter: "true" } }),
    regex: textInput({ value: given.regex ?? "", class: "mono" }),
    where: textInput({ value: given.where ?? "", class: "mono", placeholder: 'value.amount > 100.0 && value.country == "DE"' }),
    in: select([["any", "Anywhere"], ["key", "Key"], ["value", "Value"], ["headers", "Headers"]], { value: given.in ?? "any" }),
    partition: numberInput({ value: given.partition ?? "", min: 0, placeholder: "All" }),
    offset: numberInput({ value: given.offset ?? "", min: 0, placeholder: "First" }),
    until: numberInput({ value: given.until ?? "", min: 0, placeholder: "End" }),
    from: textInput({ value: given.from ?? "", placeholder: "-1h, or 2026-01-31T12:00" }),
    to: textInput({ value: given.to ?? "", placeholder: "now" }),
    limit: select(["100", "1000", "10000"], { value: given.limit ?? "100" }),
    isolation: select([["read_committed", "Committed"], ["read_uncommitted", "Also open and aborted"]], { value: given.isolation ?? "read_committed" }),
  };

  /** @returns {{typed: Record<string, string>, sent: Record<string, string>} | null} */
  const asked = () => {
    for (const each of Object.values(errors)) each.set("");
    const defaults = /** @type {Record<string, string>} */ ({ in: "any", limit: "100", isolation: "read_committed" });
    const typed = Object.fromEntries(Object.entries(inputs).map(([name, input]) => [name, input.value.trim()]).filter(([name, value]) => value && value !== defaults[name]));
    const sent = { ...typed };
    if (!typed.contains && !typed.regex && !typed.where) errors.contains.set("Say what to look for: a text, a regular expression or an expression.");
    for (const name of ["from", "to"]) {
      if (!typed[name]) continue;
      const moment = momentOf(typed[name]);
      if (moment === null) errors.from.set("A time is ISO 8601, such as 2026-01-31T12:00, milliseconds since 1970, or an age such as -15m.");
      else sent[name] = moment;
    }
    for (const name of ["partition", "offset", "until"]) {
      if (typed[name] && !/^\d{1,18}$/.test(typed[name])) errors[name === "partition" ? "partition" : "offset"].set("Expected a whole number.");
    }
    return Object.values(errors).some((each) => each.peek()) ? null : { typed, sent };
  };

  const isRunning = () => run.value.state === "running";
  const isNarrowed = FIELDS.some((name) => !["contains", "regex", "where"].includes(name) && given[name]);
  const limits = h(
    "details",
    { open: isNarrowed },
    h("summary", null, "Range and limits"),
    h(
      "div",
      { class: "search-form" },
      field("In", inputs.in),
      field("Partition", inputs.partition, { error: errors.partition }),
      field("From offset", inputs.offset, { error: errors.offset }),
      field("Before offset", inputs.until),
      field("From time", inputs.from, { error: errors.from }),
      field("Before time", inputs.to),
      field("Results at most", inputs.limit),
      field("Records", inputs.isolation),
    ),
  );
  effect(() => {
    if (errors.partition.value || errors.offset.value || errors.from.value) limits.open = true;
  });
  const form = h(
    "form",
    { class: "stack", noValidate: true, on: { submit: (/** @type {Event} */ event) => (event.preventDefault(), onStart()) } },
    h(
      "div",
      { class: "search-form" },
      field("Contains", inputs.contains, { hint: "The fastest: this text, in upper and lower case as typed", error: errors.contains }),
      field("Regular expression", inputs.regex, { hint: "RE2; (?i) ignores case", error: errors.regex }),
    ),
    field("Expression (CEL)", inputs.where, { error: errors.where }),
    help(),
    limits,
    h("div", { class: "row" }, h("button", { type: "submit", class: "primary", disabled: isRunning }, "Search"), h("button", { type: "button", class: "plain", disabled: () => !isRunning(), on: { click: onCancel } }, "Cancel"), h("span", { class: "spacer-x" }), indexLine(ctx.params.topic)),
  );
  return { form, errors, asked };
}

function help() {
  const examples = ['has(value.error) && value.error.code in [500, 503]', 'value.items.exists(item, item.sku.startsWith("A-"))', 'headers.source == "web" && timestamp > timestamp("2026-01-31T12:00:00Z")', 'key.startsWith("customer-") && value == null'];
  return h(
    "details",
    { class: "small" },
    h("summary", null, "Help with expressions"),
    h("p", null, "An expression is true or false for each record. It has ", ["value", "key", "headers", "partition", "offset", "timestamp"].map((each, at) => [at ? ", " : "", h("code", null, each)]), ". The value is the JSON that it is, or text, or bytes; null for a tombstone. Of several conditions all must hold; a text in Contains makes an expression faster."),
    h("ul", null, examples.map((each) => h("li", null, h("code", null, each)))),
  );
}

/** @param {import("../lib/signal.js").Signal<Run>} run */
function progress(run) {
  const part = () => (run.value.bytes.total ? run.value.bytes.searched / run.value.bytes.total : run.value.end ? 1 : 0);
  const bar = h("progress", { max: 1, aria: { label: "Searched" } });
  effect(() => {
    bar.value = part();
  });
  const speed = () => (run.value.tookMs > 300 ? (run.value.bytes.searched * 1000) / run.value.tookMs : null);
  const said = () => {
    const { state, bytes: of, tookMs, end } = run.value;
    const done = `${bytes(of.searched)} of ${bytes(of.total)} (${percent(part())})`;
    if (state === "running") {
      const left = speed() ? ((of.total - of.searched) * 1000) / /** @type {number} */ (speed()) : null;
      return `${done}${speed() ? `, ${rate(speed(), "bytes")}` : ""}${left !== null ? `, ${duration(Math.max(left, 0))} left` : ""}`;
    }
    const why = /** @type {Record<string, string>} */ ({ complete: "Complete", limit: "Stopped at the limit of results", failed: "Failed", cancelled: "Cancelled" })[end?.reason] ?? "Interrupted";
    return `${why}: ${done} in ${duration(tookMs)}${of.skipped ? `, the index ruled out ${bytes(of.skipped)}` : ""}`;
  };
  return h(
    "div",
    { class: "search-progress" },
    bar,
    h("span", { role: "status", data: { run: () => run.value.state } }, said),
    h("strong", null, () => `${count(run.value.results)} ${run.value.results === 1 ? "result" : "results"}`),
    () => notes(run.value.end),
  );
}

/** What could not be searched. @param {any} end */
function notes(end) {
  if (!end) return null;
  const lines = [];
  if (end.error) lines.push(end.error);
  if (end.failed_records) lines.push(`The expression failed for ${count(end.failed_records.count)} records, such as: ${end.failed_records.example}`);
  for (const each of (end.not_searched ?? []).slice(0, 5)) lines.push(`Partition ${each.partition} was not searched: ${each.reason}`);
  return lines.length ? h("ul", { class: "small wide" }, lines.map((each) => h("li", null, each))) : null;
}

/** The topic's index, and its switch. @param {string} topic */
function indexLine(topic) {
  const state = signal(/** @type {boolean | null} */ (null));
  const busy = signal(false);
  const configs = path("topics", topic, "configs");
  const load = () =>
    api.get(configs).then(
      (found) => {
        const row = found.configs.find((/** @type {any} */ each) => each.name === "search.index");
        state.set(row ? String(row.value) === "true" : null);
      },
      () => state.set(null), // who may not see the settings, sees no index
    );
  load();
  const change = async () => {
    busy.set(true);
    try {
      await api.patch(configs, { configs: { "search.index": !state.peek() } });
      await load();
    } catch (error) {
      toast(error instanceof Error ? error.message : String(error), { kind: "error" });
    } finally {
      busy.set(false);
    }
  };
  return h(
    "div",
    { class: "row small", hidden: () => state.value === null },
    h("span", null, "Index"),
    () => badge(state.value ? "on" : "off", state.value ? "ok" : "neutral"),
    h("span", { class: "muted" }, () => (state.value ? "Searches with Contains skip what cannot match." : "With it, searches with Contains skip what cannot match.")),
    actionButton("Switch", change, { kind: "plain small", why: () => whyNot("write") || (busy.value ? "Changing…" : ""), title: "Changes the topic's setting search.index. The index takes 1 to 6 % of the topic's size." }),
  );
}
