// Content that is made once, when polls have their first values, and stays: it follows later values by itself.

import { h } from "../lib/dom.js";
import { problem, skeleton } from "../lib/layout.js";
import { computed } from "../lib/signal.js";

/**
 * Grey bars until all polls have a value; their errors stand above the content.
 * @param {import("../lib/signal.js").Computed<import("../lib/api.js").Polled<any>>[]} polls
 * @param {() => import("../lib/dom.js").Child} content
 * @returns {HTMLElement}
 */
export function whenReady(polls, content) {
  const isReady = computed(() => polls.every((each) => each.value.value !== undefined));
  const wrong = computed(() => polls.map((each) => each.value.error).find((each) => each !== null) ?? null);
  const hasFailed = computed(() => wrong.value !== null);
  return h(
    "div",
    { class: "loaded", aria: { busy: () => String(!isReady.value && !hasFailed.value) } },
    () => (wrong.value ? problem(wrong.value) : null),
    () => (isReady.value ? content() : hasFailed.value ? null : skeleton()),
  );
}
