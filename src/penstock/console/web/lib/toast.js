// Short messages at the edge of the window, which go by themselves. Errors stay longer, and can be closed.

import { h } from "./dom.js";

const OK_MS = 4000;
const ERROR_MS = 12_000;

/** @type {HTMLElement | null} */
let corner = null;

/**
 * @param {string} text
 * @param {{kind?: "ok" | "error"}} [how]
 */
export function toast(text, how = {}) {
  const kind = how.kind ?? "ok";
  if (!corner) {
    corner = h("div", { class: "toasts", role: "status", aria: { live: "polite" } });
  }
  // An open dialog is above all else; a message must be inside it to be seen.
  (document.querySelector("dialog[open]") ?? document.body).append(corner);
  const made = h("div", { class: `toast ${kind}` }, h("span", null, text), h("button", { type: "button", class: "icon", aria: { label: "Close message" }, on: { click: () => made.remove() } }, "×"));
  corner.append(made);
  setTimeout(() => made.remove(), kind === "error" ? ERROR_MS : OK_MS);
}

/** Keep messages when the dialog that they are in is removed. */
export function rescueToasts() {
  if (corner && corner.parentElement !== document.body) document.body.append(corner);
}
