// The colours of the style sheet as a canvas needs them: resolved for light or dark. Asked for once a theme.

import { signal } from "./signal.js";

/** @type {Map<string, string>} */
const known = new Map();

/** Changes when the colours do. */
export const themeChanges = signal(0);

function changed() {
  known.clear();
  themeChanges.update((n) => n + 1);
}
window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", changed);
document.addEventListener("themechange", changed);

/**
 * @param {string} name of a custom property, such as "--line"
 * @returns {string}
 */
export function paint(name) {
  let found = known.get(name);
  if (found === undefined) {
    const probe = document.createElement("i");
    probe.style.setProperty("color", `var(${name})`);
    document.body.append(probe);
    found = getComputedStyle(probe).color;
    probe.remove();
    known.set(name, found);
  }
  return found;
}
