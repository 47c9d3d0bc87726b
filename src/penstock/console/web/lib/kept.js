// Content that is made once, when a poll has its first value, and then follows the poll by itself: tables keep their place.

import { h } from "./dom.js";
import { problem, skeleton } from "./layout.js";
import { computed } from "./signal.js";

/**
 * @template T
 * @param {import("./signal.js").Computed<import("./api.js").Polled<T>>} polled
 * @param {(value: import("./signal.js").Computed<T>) => import("./dom.js").Child} make Called once.
 * @returns {HTMLElement}
 */
export function kept(polled, make) {
  const has = computed(() => polled.value.value !== undefined);
  const failed = computed(() => polled.value.error);
  const value = computed(() => /** @type {T} */ (polled.value.value));
  return h(
    "div",
    { class: "loaded", aria: { busy: () => String(!has.value && !failed.value) } },
    () => (failed.value ? problem(failed.value) : null),
    () => {
      if (has.value) return make(value);
      return failed.value ? null : skeleton();
    },
  );
}
