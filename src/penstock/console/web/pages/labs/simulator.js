// The replay of a simulated cluster: run a seed, then go through what happened, event by event.

import { api } from "../../lib/api.js";
import { h } from "../../lib/dom.js";
import { field, numberInput, select } from "../../lib/form.js";
import { count } from "../../lib/format.js";
import { badge, copyButton, problem } from "../../lib/layout.js";
import { setQuery } from "../../lib/router.js";
import { computed, effect, onDispose, signal, untracked } from "../../lib/signal.js";
import { kindOf, stateAfter } from "./simulated-cluster.js";

const EXTRAS = /** @type {[string, string][]} */ ([
  ["", "what the seed decides"],
  ["failing-disks", "disks that fail"],
  ["full-disks", "disks that are full"],
  ["slow-disks", "disks that are slow"],
  ["bad-sectors", "bits that change on disks"],
  ["lost-metadata", "lost ends of the metadata log"],
  ["rollbacks", "files of an older state"],
  ["renewals", "topics deleted and created again"],
  ["voter-changes", "changes of the voters"],
  ["doors", "HTTP and line clients"],
  ["security", "log-ins, ACLs and quotas"],
]);

const LISTED = 40;
const PLAY_MS = 120;
const STATES = /** @type {Record<string, [string, import("../../lib/layout.js").Tone]>} */ ({ up: ["up", "ok"], starting: ["starting", "info"], stopping: ["stopping", "warn"], off: ["down", "bad"] });

/** @param {import("../../lib/router.js").Context} ctx */
export function content(ctx) {
  const given = ctx.query.peek();
  const seed = signal(given.seed ?? "7");
  const seconds = signal(given.seconds ?? "15");
  const nodes = signal(given.nodes ?? "3");
  const extra = signal(given.with ?? "");
  const run = signal(/** @type {any} */ (null));
  const wrong = signal(/** @type {unknown} */ (null));
  const control = signal(/** @type {AbortController | null} */ (null));
  const at = signal(Number(given.at ?? 0) || 0);

  const asked = () => ({ seed: seed.peek(), seconds: seconds.peek(), nodes: nodes.peek(), with: extra.peek() || null });

  async function start() {
    const mine = new AbortController();
    control.set(mine);
    wrong.set(null);
    run.set(null);
    try {
      run.set(await api.get("/labs/simulation", asked(), { signal: mine.signal }));
      at.set(Math.min(at.peek(), run.peek().events.length));
    } catch (error) {
      if (!mine.signal.aborted) wrong.set(error);
    } finally {
      if (control.peek() === mine) control.set(null);
    }
  }
  onDispose(() => control.peek()?.abort());
  if (at.peek()) start(); // somebody was sent to this event
  const isRunning = () => control.value !== null;

  return h(
    "div",
    null,
    h(
      "form",
      {
        class: "card stack",
        noValidate: true,
        on: {
          submit: (/** @type {Event} */ event) => {
            event.preventDefault();
            at.set(0);
            setQuery({ ...asked(), at: null }, { replace: true });
            start();
          },
        },
      },
      h("p", null, "The simulator runs the code of the nodes on simulated time, network and disks, lets clients work and things fail, and checks that no acknowledged message is lost. A seed decides everything that is random: the same seed is the same run."),
      h(
        "div",
        { class: "lab-form" },
        field("Seed", numberInput({ min: 0, max: 2147483647, value: seed })),
        field("Seconds", numberInput({ min: 1, max: 30, value: seconds }), { hint: "of virtual time, 1 to 30" }),
        field("Nodes", select(["3", "4", "5"], { value: nodes })),
        field("Faults besides", select(EXTRAS, { value: extra })),
      ),
      h(
        "div",
        { class: "row" },
        h("button", { type: "submit", class: "primary", disabled: isRunning }, () => (isRunning() ? "Running…" : "Run")),
        h("button", { type: "button", class: "plain", hidden: () => !isRunning(), on: { click: () => (control.peek()?.abort(), control.set(null)) } }, "Cancel"),
        h("span", { class: "muted", role: "status" }, () => (isRunning() ? "In a process of its own; a few seconds." : "")),
      ),
    ),
    () => (wrong.value ? problem(wrong.value) : null),
    () => (run.value ? player(run.value, at) : null),
  );
}

/**
 * @param {any} run
 * @param {import("../../lib/signal.js").Signal<number>} at
 */
function player(run, at) {
  /** @type {import("./simulated-cluster.js").SimEvent[]} */
  const events = run.events;
  const kinds = events.map((each) => kindOf(each.text));
  const state = computed(() => stateAfter(events, at.value));
  const isPlaying = signal(false);
  const go = (/** @type {number} */ to) => at.set(Math.min(Math.max(to, 0), events.length));
  const toNext = (/** @type {number} */ by, /** @type {string[]} */ wanted) => {
    let to = at.peek() + by;
    while (to > 0 && to <= events.length && !wanted.includes(kinds[to - 1])) to += by;
    go(to);
  };
  effect(() => {
    if (!isPlaying.value) return;
    const timer = setInterval(() => (at.peek() >= events.length ? isPlaying.set(false) : go(at.peek() + 1)), PLAY_MS);
    onDispose(() => clearInterval(timer));
  });
  effect(() => {
    const now = at.value;
    const timer = setTimeout(() => untracked(() => setQuery({ at: now || null }, { replace: true })), 300);
    onDispose(() => clearTimeout(timer));
  });
  const slider = h("input", { type: "range", min: 0, max: events.length, value: () => String(at.value), aria: { label: "Event" }, on: { input: () => go(Number(slider.value)) } });
  const button = (/** @type {string} */ label, /** @type {() => void} */ act, /** @type {() => boolean} */ off) => h("button", { type: "button", class: "plain", disabled: off, on: { click: act } }, label);
  const atEnd = () => at.value >= events.length;
  const atStart = () => at.value <= 0;

  return h(
    "div",
    { class: "stack" },
    h(
      "section",
      { class: "card stack", aria: { label: "Replay" } },
      h("h2", null, "Replay"),
      h(
        "div",
        { class: "row spread" },
        h("div", { class: "row" }, run.ok ? badge("every rule held", "ok") : badge("a rule was broken", "bad"), h("span", { class: "muted" }, `${count(events.length)} events in ${count(run.virtual_ms)} ms, ${count(run.acked)} batches acknowledged, ${count(run.power_cuts)} power ${run.power_cuts === 1 ? "cut" : "cuts"}, ${count(run.read)} records in the end${run.is_cut ? "; only the first are shown" : ""}`)),
        h("div", { class: "row" }, copyButton(run.command, "Copy the command")),
      ),
      run.failure ? problem(new Error(run.failure)) : null,
      h(
        "div",
        { class: "row" },
        button("Back", () => go(at.peek() - 1), atStart),
        button("Step", () => go(at.peek() + 1), atEnd),
        h("button", { type: "button", class: "plain", on: { click: () => isPlaying.update((now) => !now) }, disabled: () => atEnd() && !isPlaying.value }, () => (isPlaying.value ? "Pause" : "Play")),
        button("Previous fault or election", () => toNext(-1, ["fault", "election"]), atStart),
        button("Next fault or election", () => toNext(1, ["fault", "election"]), atEnd),
        h("span", { class: "mono lab-clock" }, () => `${at.value ? (events[at.value - 1].us / 1e6).toFixed(6) : "0.000000"} s`),
      ),
      slider,
      h("p", { class: "lab-now", role: "status" }, () => (at.value ? events[at.value - 1].text : "Before the first event.")),
      () => cluster(state.value),
    ),
    h("section", { class: "card", aria: { label: "Events" } }, h("h2", null, "Events"), () => list(events, kinds, at.value, go)),
  );
}

/** @param {import("./simulated-cluster.js").SimState} state */
function cluster(state) {
  const partitions = [...state.partitions].filter(([key]) => !key.startsWith("__")).sort(([one], [other]) => one.localeCompare(other, "en", { numeric: true }));
  const longest = Math.max(1, ...partitions.map(([, each]) => Math.max(each.acked, each.read)));
  return h(
    "div",
    { class: "stack" },
    state.isCut ? h("p", null, badge("the network is cut", "bad")) : null,
    h(
      "div",
      { class: "lab-nodes" },
      [...state.nodes.values()].map((each) =>
        h(
          "div",
          { class: "lab-node", data: { state: each.state } },
          h("div", { class: "row spread" }, h("h3", null, each.name), badge(...(STATES[each.state] ?? ["?", "neutral"]))),
          h("p", { class: "small muted" }, `process ${each.process}${each.isController ? " · leads the quorum" : ""}`),
          h("p", { class: "small wrap" }, each.leads.size ? `leads ${[...each.leads].filter((key) => !key.startsWith("__")).join(", ") || "internal topics"}` : ""),
        ),
      ),
    ),
    partitions.map(([key, each]) =>
      h(
        "div",
        { class: "lab-replica" },
        h("span", { class: "mono cut", title: key }, key),
        h("div", { class: "lab-bar" }, h("i", { style: { width: `${(100 * each.acked) / longest}%` } }), each.read ? h("b", { style: { left: `${(100 * each.read) / longest}%` }, title: `read up to ${each.read}` }) : null),
        h("span", { class: "mono right", title: "acknowledged up to" }, count(each.acked)),
        h("span", { class: "small muted" }, each.leader ? `${each.leader}, epoch ${each.epoch}` : "no leader"),
      ),
    ),
  );
}

/**
 * Events around the present one.
 * @param {import("./simulated-cluster.js").SimEvent[]} events
 * @param {string[]} kinds
 * @param {number} at
 * @param {(to: number) => void} go
 */
function list(events, kinds, at, go) {
  const first = Math.max(0, Math.min(at - LISTED / 4, events.length - LISTED));
  const shown = events.slice(first, first + LISTED);
  return h(
    "ol",
    { class: "lab-events", start: first + 1 },
    shown.map((each, index) => {
      const number = first + index + 1;
      return h(
        "li",
        { aria: { current: number === at ? "step" : null }, data: { kind: kinds[number - 1] } },
        h("button", { type: "button", class: "lab-event", on: { click: () => go(number) } }, h("span", { class: "mono muted" }, `${(each.us / 1e6).toFixed(3)} s`), h("span", { class: "wrap" }, each.text)),
      );
    }),
  );
}
