// One topic: its key figures, and a tab for each thing to look at or change.

import { api, poll, whyNot } from "../lib/api.js";
import { h, mount } from "../lib/dom.js";
import { bytes, compact, count, rate } from "../lib/format.js";
import { actionButton, badge, emptyState, loading, pageHeader, problem, skeleton, stat, tabs } from "../lib/layout.js";
import { link, location, path } from "../lib/router.js";
import { computed, onDispose, scope } from "../lib/signal.js";
import { addPartitions, deleteRecords, deleteTopic } from "./topic/actions.js";
import { groupsTab } from "./topic/groups.js";
import { partitionsTab } from "./topic/partitions.js";
import { segmentsTab } from "./topic/segments.js";
import { settingsTab } from "./topic/settings.js";
import { retention } from "./topic/words.js";
import { unanswered } from "./topics.js";

/** @typedef {import("./topic/shapes.js").Topic} Topic */

/** @param {Record<string, string>} params */
export const title = (params) => params.topic;
const OWN_PAGES = ["messages", "search"]; // which load what they show themselves
export const keeps = ["tab", "part"];

/** @type {[string, string][]} */
const TABS = [
  ["partitions", "Partitions"],
  ["messages", "Messages"],
  ["search", "Search"],
  ["settings", "Settings"],
  ["segments", "Segments"],
  ["groups", "Groups"],
];
const MANY = 200; // with more partitions, the topic is asked for less often
const MANY_MS = 15_000;

/** @param {import("../lib/router.js").Context} ctx */
export function page(ctx) {
  const name = ctx.params.topic;
  const tab = computed(() => location.value.params.tab ?? "partitions");
  /** @type {{at: number, topic: Topic} | null} */
  let kept = null;
  const polled = poll(async (stop) => {
    if (kept && kept.topic.partitions.length > MANY && Date.now() - kept.at < MANY_MS) return kept.topic;
    const topic = await api.get(path("topics", name), { details: true }, { signal: stop });
    kept = { at: Date.now(), topic };
    return topic;
  }, 3);
  const refresh = () => {
    kept = null;
    polled.refresh();
  };
  const topic = computed(() => /** @type {Topic | undefined} */ (polled.value.value));
  const isGone = computed(() => polled.value.error?.status === 404);
  const hadIt = computed(() => topic.value !== undefined);

  return h(
    "div",
    null,
    () =>
      isGone.value
        ? gone(name, hadIt.value)
        : [
            pageHeader({ title: name, crumbs: [["Topics", "/topics"]], actions: actions(topic, refresh) }),
            () => (polled.value.error ? loading(polled, () => null) : null),
            () => unanswered(topic.value?.unanswered),
            h("div", { hidden: () => OWN_PAGES.includes(tab.value) }, figures(topic)),
            tabs(TABS, tab, { href: (id) => path("topics", name, id), label: "Parts of this topic" }),
            () => (OWN_PAGES.includes(tab.value) ? other(tab.value, ctx) : content(tab.value, ctx, topic, hadIt.value, refresh)),
          ],
  );
}

/**
 * @param {string} name
 * @param {boolean} wasThere
 */
function gone(name, wasThere) {
  const list = link("/topics", { class: "button" }, "All topics");
  if (!wasThere) return [pageHeader({ title: name, crumbs: [["Topics", "/topics"]] }), emptyState("There is no such topic", `No topic of this cluster has the name ${name}, or you may not see it.`, list)];
  return [pageHeader({ title: name, crumbs: [["Topics", "/topics"]] }), emptyState("This topic was deleted", "Somebody deleted it while you looked at it. If it is created again, this page shows the new one.", list)];
}

/**
 * @param {import("../lib/signal.js").Computed<Topic | undefined>} topic
 * @param {() => void} refresh
 */
function actions(topic, refresh) {
  const why = (/** @type {string} */ what, /** @type {boolean} */ isForInternal = true) => () => {
    if (!topic.value) return "The topic is not loaded yet.";
    if (!isForInternal && topic.value.internal) return "An internal topic cannot be deleted here.";
    return whyNot(what);
  };
  const run = (/** @type {(topic: Topic, done: () => void) => void} */ open) => () => topic.value && open(topic.value, refresh);
  return [
    actionButton("Add partitions", run(addPartitions), { why: why("alter topics") }),
    actionButton("Delete records", run(deleteRecords), { why: why("delete records") }),
    actionButton("Delete topic", run(deleteTopic), { kind: "danger", why: why("delete topics", false) }),
  ];
}

/** @param {import("../lib/signal.js").Computed<Topic | undefined>} topic */
function figures(topic) {
  const of = (/** @type {(row: import("./topic/shapes.js").TopicRow) => any} */ show) => () => (topic.value ? show(topic.value.summary) : "–");
  const orUnknown = (/** @type {number | null} */ n, /** @type {(n: number) => string} */ show) => (n === null ? "unknown" : show(n));
  return h(
    "div",
    { class: "stats" },
    stat("Partitions", of((row) => count(row.partitions)), {
      tone: () => (topic.value?.summary.offline ? "bad" : topic.value?.summary.under_replicated ? "warn" : "neutral"),
      hint: h("span", null, of((row) => health(row))),
    }),
    stat("Replicas", of((row) => row.replication_factor), { hint: h("span", null, () => (topic.value?.internal ? badge("internal") : "of each partition")) }),
    stat("Records", of((row) => orUnknown(row.messages, compact)), { hint: h("span", null, of((row) => (row.messages !== null && row.messages >= 10_000 ? count(row.messages) : "log start to end"))) }),
    stat("Size", of((row) => orUnknown(row.size_bytes, bytes)), { hint: "of all replicas" }),
    stat("In", of((row) => rate(row.bytes_in_per_second, "bytes")), { hint: h("span", null, of((row) => rate(row.messages_in_per_second, "records"))) }),
    stat("Retention", of(retention), { hint: h("span", null, of((row) => (row.cleanup_policy ?? []).join(" and ") || "no clean-up")) }),
  );
}

/** @param {import("./topic/shapes.js").TopicRow} row */
function health(row) {
  if (row.offline) return `${count(row.offline)} without a leader`;
  if (row.under_replicated) return `${count(row.under_replicated)} under-replicated`;
  return "all in sync";
}

/**
 * @param {string} tab
 * @param {import("../lib/router.js").Context} ctx
 * @param {import("../lib/signal.js").Computed<Topic | undefined>} topic
 * @param {boolean} isLoaded
 * @param {() => void} refresh
 */
function content(tab, ctx, topic, isLoaded, refresh) {
  if (!isLoaded) return skeleton(8);
  const name = ctx.params.topic;
  switch (tab) {
    case "partitions":
      return partitionsTab(topic, ctx.query);
    case "settings":
      return settingsTab(name, refresh);
    case "segments":
      return segmentsTab(name, topic, ctx.query);
    case "groups":
      return groupsTab(name);
    default:
      return problem(new Error("There is no such page."));
  }
}

/**
 * A page of its own as a tab.
 * @param {string} name
 * @param {import("../lib/router.js").Context} ctx
 */
function other(name, ctx) {
  const outlet = h("div", null, skeleton(8));
  let isOver = false;
  /** @type {() => void} */
  let end = () => {};
  onDispose(() => {
    isOver = true;
    end();
  });
  const open = async () => {
    const module = await import(`./${name}.js`);
    if (isOver) return;
    /** @type {Node | Promise<Node>} */
    let made;
    [made, end] = scope(() => module.page({ ...ctx, embedded: true }));
    mount(outlet, await made);
  };
  open().catch((error) => mount(outlet, problem(error instanceof TypeError ? new Error("This part could not be loaded from the node.") : error)));
  return outlet;
}

