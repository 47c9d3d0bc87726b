// A lab as steps: each explains, does something on the node, and shows what came of it.

import { api, ApiError, whyNot } from "../../lib/api.js";
import { confirm } from "../../lib/dialog.js";
import { h } from "../../lib/dom.js";
import { actionButton, problem } from "../../lib/layout.js";
import { link, location } from "../../lib/router.js";
import { computed, signal } from "../../lib/signal.js";

/**
 * @typedef {object} Step
 * @property {string} title
 * @property {import("../../lib/dom.js").Child} text
 * @property {{label: string, run: () => Promise<string | void>, sure?: string}} [action] What it does; it may return a sentence about it. `sure` is asked before something is deleted.
 * @property {import("../../lib/dom.js").Child} [picture]
 */

/**
 * @param {string} lab Its name in the address.
 * @param {Step[]} steps
 * @param {import("../../lib/dom.js").Child} [below] Shown below every step.
 */
export function walk(lab, steps, below) {
  const at = computed(() => Math.min(Math.max(Number(location.value.params.step) || 1, 1), steps.length));
  // Made once, so that what a step has shown stays when one comes back to it.
  const cards = steps.map((step, index) => card(step, index + 1));
  return h(
    "div",
    { class: "lab" },
    h(
      "ol",
      { class: "lab-steps" },
      steps.map((step, index) => h("li", null, link(`/labs/${lab}/${index + 1}`, { aria: { current: () => (at.value === index + 1 ? "step" : null) } }, step.title))),
    ),
    h(
      "div",
      { class: "lab-step" },
      () => cards[at.value - 1],
      below,
      h(
        "div",
        { class: "row spread" },
        () => (at.value > 1 ? link(`/labs/${lab}/${at.value - 1}`, { class: "button" }, "Back") : h("span")),
        () => (at.value < steps.length ? link(`/labs/${lab}/${at.value + 1}`, { class: "button" }, "Next") : link("/labs", { class: "button" }, "All labs")),
      ),
    ),
  );
}

/**
 * @param {Step} step
 * @param {number} number
 */
function card(step, number) {
  return h(
    "section",
    { class: "card stack", aria: { label: step.title } },
    h("h2", null, `${number}. ${step.title}`),
    h("div", { class: "stack lab-text" }, step.text),
    step.action ? deed(step.action) : null,
    step.picture ?? null,
  );
}

/** @param {NonNullable<Step["action"]>} action */
function deed(action) {
  const busy = signal(false);
  const said = signal(/** @type {string | Error} */ (""));
  const run = async () => {
    busy.set(true);
    said.set("");
    try {
      said.set((await action.run()) ?? "Done.");
    } catch (error) {
      said.set(error instanceof Error ? error : new Error(String(error)));
    } finally {
      busy.set(false);
    }
  };
  const ask = () => confirm({ title: `${action.label}?`, text: action.sure ?? "", label: "Delete", kind: "danger", action: run });
  return h(
    "div",
    { class: "stack" },
    h("div", { class: "row" }, actionButton(action.label, action.sure ? ask : run, { kind: action.sure ? "danger" : "primary", why: () => (busy.value ? "It is being done." : whyNot("write")) })),
    h("div", { role: "status" }, () => {
      const now = said.value;
      if (!now) return null;
      return now instanceof Error ? problem(now) : h("p", { class: "lab-done" }, now);
    }),
  );
}

/**
 * @param {string} text
 * @param {...import("../../lib/dom.js").Child} more
 */
export function p(text, ...more) {
  return h("p", null, text, ...more);
}

/** @param {string} text A command for a terminal. */
export function command(text) {
  return h("pre", { class: "block" }, text);
}

/**
 * Create a topic, unless it exists.
 * @param {string} name
 * @param {{partitions?: number, replication_factor?: number, configs?: Record<string, any>}} how
 */
export async function createTopic(name, how) {
  try {
    await api.post("/topics", { name, partitions: 1, ...how });
  } catch (error) {
    if (!(error instanceof ApiError && error.code === "topic_already_exists")) throw error;
  }
}

/** Delete topics that exist. @param {...string} names */
export async function deleteTopics(...names) {
  for (const name of names) {
    try {
      await api.delete(`/topics/${name}`);
    } catch (error) {
      if (!(error instanceof ApiError && error.status === 404)) throw error;
    }
  }
}

/**
 * Write batches of messages, one after the other: each is a batch in the log.
 * @param {string} topic
 * @param {number} batches
 * @param {{size?: number, bytes?: number, partition?: number | null, from?: number}} [how]
 */
export async function write(topic, batches, { size = 10, bytes = 300, partition = 0, from = 0 } = {}) {
  for (let batch = 0; batch < batches; batch++) {
    const records = Array.from({ length: size }, (_, at) => {
      const number = from + batch * size + at;
      return { topic, ...(partition === null ? {} : { partition }), key: btoa(`key-${number}`), value: btoa(`message ${number} `.padEnd(bytes, ".")) };
    });
    const found = await api.post("/produce", records);
    const failed = found.find((/** @type {any} */ each) => each.error);
    if (failed) throw new Error(failed.error.message);
  }
}

/**
 * What a topic has inside; null if there is no such topic.
 * @param {string} topic
 * @param {AbortSignal} [abort]
 */
export async function inside(topic, abort) {
  try {
    return await api.get(`/api/architecture/topics/${topic}`, { partition: 0 }, { signal: abort });
  } catch (error) {
    if (error instanceof ApiError && error.status === 404) return null;
    throw error;
  }
}
