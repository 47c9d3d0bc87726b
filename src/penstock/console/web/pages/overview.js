// Is all well? One sentence, the numbers that matter, the last hour as charts, the brokers, and what happened.

import { api, poll } from "../lib/api.js";
import { h } from "../lib/dom.js";
import { bytes, compact, count, percent, rate } from "../lib/format.js";
import { loading, pageHeader, stat } from "../lib/layout.js";
import { computed } from "../lib/signal.js";
import { begin } from "./overview/begin.js";
import { brokers } from "./overview/brokers.js";
import { charts } from "./overview/charts.js";
import { events } from "./overview/events.js";
import { status } from "./overview/status.js";

export const title = "Overview";

const OVERVIEW_S = 5;

/** @param {import("../lib/router.js").Context} ctx */
export function page(ctx) {
  const overview = poll((signal) => api.get("/cluster/overview", null, { signal }), OVERVIEW_S);
  const found = computed(() => overview.value.value);
  const isThere = computed(() => found.value !== undefined);
  const isEmpty = computed(() => found.value?.topics === 0);
  return h(
    "div",
    { class: "overview" },
    pageHeader({ title }),
    loading(said(overview), status, { lines: 2 }),
    () =>
      isThere.value
        ? [
            stats(found),
            () => (isEmpty.value ? begin() : null),
            brokers(found),
            h("div", { class: "overview-columns" }, charts(ctx.query), events(ctx.query)),
          ]
        : null,
  );
}

/**
 * What the sentence at the top is made of: it is written anew only if that has changed, and not read aloud every time.
 * @param {import("../lib/signal.js").Computed<import("../lib/api.js").Polled<any>>} overview
 */
function said(overview) {
  const text = computed(() => {
    const { value, error } = overview.value;
    if (!value) return { value, error };
    const brokers = value.brokers.map((/** @type {any} */ { id, state, missing, problems, warnings }) => ({ id, state, missing, problems, warnings }));
    const { status, topics, partitions, problems, quorum } = value;
    return { value: JSON.stringify({ status, topics, partitions, problems, brokers, quorum: { leader: quorum.leader } }), error };
  });
  const sentence = computed(() => text.value.value);
  const error = computed(() => text.value.error);
  return computed(() => ({ value: sentence.value && JSON.parse(sentence.value), error: error.value, loading: false }));
}

/** @param {import("../lib/signal.js").Computed<any>} found */
function stats(found) {
  const broken = (/** @type {any} */ { partitions: each }) => each.offline || each.under_min_isr;
  const up = () => found.value.brokers.filter((/** @type {any} */ each) => each.state === "active" && !each.missing).length;
  const all = () => found.value.brokers.length;
  return h(
    "div",
    { class: "stats" },
    stat("Brokers", () => (up() === all() ? count(all()) : `${up()} of ${all()}`), {
      tone: () => (up() === all() ? "neutral" : "bad"),
      hint: () => (up() === all() ? "all are up" : "are up"),
      href: "/cluster",
    }),
    stat("Controller", () => (found.value.quorum.leader === null ? "none" : `node ${found.value.quorum.leader}`), {
      tone: () => (found.value.quorum.leader === null ? "bad" : "neutral"),
      hint: () => `epoch ${found.value.quorum.epoch}`,
      href: "/cluster",
    }),
    stat("Topics", () => count(found.value.topics), { hint: () => `${compact(found.value.partitions.total)} partitions`, href: "/topics" }),
    stat("Under-replicated", () => count(found.value.partitions.under_replicated), {
      tone: () => (broken(found.value) ? "bad" : found.value.partitions.under_replicated ? "warn" : "neutral"),
      hint: () => `${count(found.value.partitions.offline)} without leader`,
    }),
    stat("Written", () => rate(found.value.rates.bytes_in, "bytes"), { hint: () => rate(found.value.rates.messages_in, "messages") }),
    stat("Read", () => rate(found.value.rates.bytes_out, "bytes"), { hint: () => rate(found.value.rates.messages_out, "messages") }),
    stat("Requests", () => rate(found.value.rates.requests), { hint: () => `${count(total(found.value.brokers, "connections"))} connections` }),
    stat("Disk used", () => percent(fullest(found.value.brokers)), {
      tone: () => ((fullest(found.value.brokers) ?? 0) > 0.95 ? "bad" : (fullest(found.value.brokers) ?? 0) > 0.85 ? "warn" : "neutral"),
      hint: () => `${bytes(total(found.value.brokers, "log_bytes"))} in logs`,
    }),
  );
}

/** @param {any[]} rows @param {string} name */
function total(rows, name) {
  const known = rows.map((each) => each[name]).filter((each) => each !== null);
  return known.length ? known.reduce((sum, each) => sum + each, 0) : null;
}

/** How full the fullest disk is. @param {any[]} rows */
function fullest(rows) {
  const parts = rows.filter((each) => each.disk_bytes).map((each) => 1 - each.disk_usable_bytes / each.disk_bytes);
  return parts.length ? Math.max(...parts) : null;
}
