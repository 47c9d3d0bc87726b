// What happened, the latest first, as it happens.

import { api } from "../../lib/api.js";
import { h } from "../../lib/dom.js";
import { ago, time, utc } from "../../lib/format.js";
import { problem } from "../../lib/layout.js";
import { link, setQuery } from "../../lib/router.js";
import { computed, effect, onDispose, signal, untracked } from "../../lib/signal.js";

const LISTED = 100;
const KEPT_MAX = 200;
const CLOCK_MS = 10_000;

/** Kinds of events that can be chosen together. @type {Record<string, [string, string[]]>} */
const CHOICES = {
  all: ["Everything", []],
  brokers: [
    "Brokers",
    ["node_started", "broker_registered", "broker_unfenced", "broker_fenced", "broker_stopping", "broker_unregistered", "controller_changed", "disk_failed", "disk_recovered"],
  ],
  partitions: [
    "Partitions",
    ["leaders_changed", "unclean_election", "partitions_offline", "partitions_online", "isr_shrunk", "isr_expanded", "reassignment_begun", "reassignment_ended"],
  ],
  topics: ["Topics and settings", ["topic_created", "topic_deleted", "topic_widened", "settings_changed", "feature_changed"]],
  groups: ["Groups", ["group_rebalanced", "group_emptied", "group_deleted"]],
};

/** @param {import("../../lib/signal.js").Computed<Record<string, string>>} query */
export function events(query) {
  const choice = computed(() => (query.value.events && query.value.events in CHOICES ? query.value.events : "all"));
  const rows = signal(/** @type {any[] | null} */ (null));
  const error = signal(/** @type {unknown} */ (null));
  const now = signal(Date.now());
  const clock = setInterval(() => now.set(Date.now()), CLOCK_MS);
  onDispose(() => clearInterval(clock));

  effect(() => {
    const kind = CHOICES[choice.value][1].join(",");
    let isOver = false;
    let close = () => {};
    onDispose(() => {
      isOver = true;
      close();
    });
    untracked(() => begin(kind));

    /** @param {string} kind */
    async function begin(kind) {
      try {
        const found = await api.get("/cluster/events", { kind, limit: LISTED });
        if (isOver) return;
        rows.set(found.events.reverse());
        error.set(null);
        close = api.events("/cluster/events/stream", { kind, after: found.next }, {
          onEvent: ({ event, data }) => {
            if (event !== "message") return;
            now.set(Date.now());
            rows.update((known) => [data, ...(known ?? []).filter((each) => each.id !== data.id)].slice(0, KEPT_MAX));
            error.set(null);
          },
          onOpen: () => error.set(null),
          onError: (failed) => failed.status && error.set(failed),
        });
      } catch (failed) {
        if (!isOver) error.set(failed);
      }
    }
  });

  return h(
    "section",
    { class: "card overview-events", aria: { label: "Events" } },
    h(
      "div",
      { class: "row spread" },
      h("h2", null, "Events"),
      h(
        "select",
        { aria: { label: "Kinds of events" }, on: { change: (/** @type {any} */ event) => setQuery({ events: event.target.value === "all" ? null : event.target.value }, { replace: true }) } },
        Object.entries(CHOICES).map(([id, [label]]) => h("option", { value: id, selected: () => choice.value === id }, label)),
      ),
    ),
    () => (error.value ? problem(error.value) : null),
    h("div", { class: "overview-log", role: "log", tabIndex: 0, aria: { label: "Latest events" } }, () => {
      const found = rows.value;
      if (found === null) return null;
      if (!found.length) return h("p", { class: "muted" }, "Nothing of this kind has happened since the brokers started.");
      return h("ol", null, found.map((each) => row(each, now)));
    }),
  );
}

/** @param {any} event @param {import("../../lib/signal.js").Signal<number>} now */
function row(event, now) {
  return h(
    "li",
    { data: { severity: event.severity } },
    h("time", { dateTime: utc(event.time), title: `${time(event.time)} (${utc(event.time)})` }, () => ago(event.time, Math.max(now.value, event.time))),
    h("span", { title: event.topics.join(", ") || null }, linked(event)),
  );
}

/** The sentence, with a link where it names a topic, a group or a broker. @param {any} event */
function linked({ text, topic, group, broker }) {
  const place = topic !== null ? `/topics/${encodeURIComponent(topic)}` : group !== null ? `/groups/${encodeURIComponent(group)}` : null;
  const name = topic ?? group ?? (broker === null ? null : /\b(?:[Bb]roker|Node) \d+/.exec(text)?.[0] ?? null);
  if (name === null || name === undefined) return text;
  const at = text.indexOf(name);
  if (at < 0) return text;
  return [text.slice(0, at), link(place ?? `/cluster/brokers/${broker}`, null, name), text.slice(at + name.length)];
}
