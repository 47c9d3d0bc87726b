// JSON as a tree that opens on demand. What is closed is not in the document, long lists and texts are shown a piece at a
// time, so 10 MB are as quick as 10 KB.

import { h } from "./dom.js";
import { ExactNumber } from "./exact-json.js";

const ITEMS = 100; // children that are shown at a time
const TEXT_MAX = 500; // characters of a text that are shown at first
const TEXT_MORE = 20_000; // and with each click

/**
 * @param {any} value What JSON.parse or `parseExact` returns.
 * @param {{open?: number}} [options] How many levels are open at first.
 * @returns {HTMLElement}
 */
export function jsonTree(value, options = {}) {
  return h("div", { class: "json-tree", translate: false }, node(value, null, options.open ?? 1));
}

/**
 * @param {any} value
 * @param {string | number | null} name
 * @param {number} open
 * @returns {HTMLElement}
 */
function node(value, name, open) {
  const label = name === null ? null : [h("span", { class: typeof name === "number" ? "json-index" : "json-key" }, cut(String(name), TEXT_MAX)), ": "];
  if (value === null || typeof value !== "object" || value instanceof ExactNumber) return h("div", { class: "json-leaf" }, label, leaf(value));
  const isList = Array.isArray(value);
  const keys = isList ? null : Object.keys(value);
  const size = keys ? keys.length : value.length;
  const [begin, end] = isList ? "[]" : "{}";
  if (size === 0) return h("div", { class: "json-leaf" }, label, h("span", { class: "json-mark" }, begin + end));
  const inside = h("div", { class: "json-inside" });
  const details = h(
    "details",
    null,
    h("summary", null, label, h("span", { class: "json-mark" }, begin), h("span", { class: "json-size" }, preview(value, keys, size)), h("span", { class: "json-mark" }, end)),
    inside,
  );
  let isFilled = false;
  const fill = () => {
    if (isFilled) return;
    isFilled = true;
    more(inside, value, keys, size, 0, open - 1);
  };
  details.addEventListener("toggle", () => {
    if (details.open) fill();
  });
  if (open > 0) {
    details.open = true;
    fill();
  }
  return details;
}

/**
 * @param {HTMLElement} inside
 * @param {any} value
 * @param {string[] | null} keys
 * @param {number} size
 * @param {number} from
 * @param {number} open
 */
function more(inside, value, keys, size, from, open) {
  const end = Math.min(size, from + ITEMS);
  for (let at = from; at < end; at++) {
    const name = keys ? keys[at] : at;
    inside.append(node(value[name], name, open));
  }
  if (end === size) return;
  const left = size - end;
  const button = h(
    "button",
    {
      type: "button",
      class: "link",
      on: {
        click: () => {
          button.remove();
          more(inside, value, keys, size, end, open);
        },
      },
    },
    `Show ${Math.min(ITEMS, left)} more of ${left.toLocaleString("en-US")}`,
  );
  inside.append(button);
}

/**
 * A word about what is inside: names of the first keys, or how many items.
 * @param {any} value
 * @param {string[] | null} keys
 * @param {number} size
 */
function preview(value, keys, size) {
  if (!keys) return ` ${size.toLocaleString("en-US")} ${size === 1 ? "item" : "items"} `;
  const shown = keys.slice(0, 4).map((each) => cut(each, 24)).join(", ");
  return ` ${shown}${size > 4 ? `, … ${size.toLocaleString("en-US")} keys` : ""} `;
}

/** @param {any} value */
function leaf(value) {
  if (typeof value === "string") return textLeaf(value);
  const kind = value === null ? "null" : value instanceof ExactNumber ? "number" : typeof value;
  return h("span", { class: `json-${kind}` }, String(value));
}

/** @param {string} value */
function textLeaf(value) {
  if (value.length <= TEXT_MAX) return h("span", { class: "json-string" }, JSON.stringify(value));
  let shown = TEXT_MAX;
  const content = h("span", { class: "json-string" }, JSON.stringify(value.slice(0, shown)));
  const button = h(
    "button",
    {
      type: "button",
      class: "link",
      on: {
        click: () => {
          shown = Math.min(value.length, shown + TEXT_MORE);
          content.textContent = JSON.stringify(value.slice(0, shown));
          label();
        },
      },
    },
  );
  const label = () => {
    const left = value.length - shown;
    button.hidden = left === 0;
    button.textContent = `Show ${Math.min(TEXT_MORE, left).toLocaleString("en-US")} more of ${left.toLocaleString("en-US")} characters`;
  };
  label();
  return h("span", null, content, " ", button);
}

/** @param {string} text @param {number} max */
function cut(text, max) {
  return text.length > max ? `${text.slice(0, max)}…` : text;
}
