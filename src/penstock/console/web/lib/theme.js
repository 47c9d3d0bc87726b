// Light or dark: as the system, or as chosen; kept in the browser.

import { signal } from "./signal.js";

/** @typedef {"auto" | "light" | "dark"} Theme */

const KEY = "penstock-theme";
const THEMES = /** @type {Theme[]} */ (["auto", "light", "dark"]);

export const theme = signal(kept());

/** @returns {Theme} */
function kept() {
  try {
    const found = /** @type {Theme} */ (localStorage.getItem(KEY));
    return THEMES.includes(found) ? found : "auto";
  } catch {
    return "auto"; // a browser that keeps nothing
  }
}

export function applyTheme() {
  document.documentElement.dataset.theme = theme.peek();
  document.dispatchEvent(new Event("themechange"));
}

export function nextTheme() {
  theme.update((now) => THEMES[(THEMES.indexOf(now) + 1) % THEMES.length]);
  try {
    localStorage.setItem(KEY, theme.peek());
  } catch {
    // it holds until the page is closed
  }
  applyTheme();
}
