// The parts that pages are put together of.

import { ApiError } from "./api.js";
import { h } from "./dom.js";
import { link } from "./router.js";
import { effect, read } from "./signal.js";
import { toast } from "./toast.js";

/** @typedef {import("./dom.js").Child} Child */
/** @typedef {"ok" | "warn" | "bad" | "neutral" | "info"} Tone */

/**
 * @param {object} options
 * @param {Child} options.title
 * @param {[string, string][]} [options.crumbs] labels and paths
 * @param {Child[]} [options.actions]
 * @param {Child} [options.about]
 * @returns {HTMLElement}
 */
export function pageHeader({ title, crumbs = [], actions = [], about }) {
  const name = typeof title === "string" ? title : null;
  return h(
    "header",
    { class: "page-header" },
    h(
      "div",
      { class: "page-title" },
      crumbs.length ? h("nav", { class: "crumbs", aria: { label: "Breadcrumb" } }, crumbs.map(([label, path]) => [link(path, null, label), h("span", { aria: { hidden: "true" } }, "/")])) : null,
      h("h1", { title: name }, title),
      about ? h("p", { class: "muted" }, about) : null,
    ),
    actions.length ? h("div", { class: "page-actions" }, actions) : null,
  );
}

/**
 * Links between the parts of a page, when `href` is given; otherwise buttons that set the signal.
 * @param {[string, string][]} items ids and labels
 * @param {import("./signal.js").Signal<string> | import("./signal.js").Computed<string>} current
 * @param {{href?: (id: string) => string, label?: string}} [more]
 * @returns {HTMLElement}
 */
export function tabs(items, current, more = {}) {
  const { href } = more;
  const chosen = (/** @type {string} */ id) => ({ current: () => (current.value === id ? "page" : null) });
  const made = h(
    "nav",
    { class: "tabs", aria: { label: more.label ?? "Parts of this page" } },
    items.map(([id, label]) =>
      href
        ? link(href(id), { aria: chosen(id) }, label)
        : h("button", { type: "button", aria: chosen(id), on: { click: () => /** @type {any} */ (current).set(id) } }, label),
    ),
  );
  // On a narrow screen they scroll.
  effect(() => {
    current.value;
    requestAnimationFrame(() => {
      const chosen = /** @type {HTMLElement | null} */ (made.querySelector("[aria-current]"));
      if (!chosen) return;
      const left = chosen.offsetLeft - made.offsetLeft;
      if (left < made.scrollLeft || left + chosen.offsetWidth > made.scrollLeft + made.clientWidth) made.scrollLeft = left - 16;
    });
  });
  return made;
}

/**
 * @param {Child} title
 * @param {...Child} children
 * @returns {HTMLElement}
 */
export function card(title, ...children) {
  return h("section", { class: "card" }, title ? h("h2", null, title) : null, children);
}

/**
 * A number that matters, with its name.
 * @param {string} label
 * @param {Child | import("./signal.js").Signal<any> | import("./signal.js").Computed<any>} value
 * @param {{tone?: Tone | (() => Tone), hint?: Child, href?: string}} [more]
 * @returns {HTMLElement}
 */
export function stat(label, value, more = {}) {
  const shown = typeof value === "function" ? value : () => read(/** @type {any} */ (value));
  const inside = [h("span", { class: "stat-label" }, label), h("span", { class: "stat-value" }, shown), more.hint ? h("span", { class: "stat-hint" }, more.hint) : null];
  const data = { tone: more.tone ?? null };
  return more.href ? link(more.href, { class: "stat", data }, inside) : h("div", { class: "stat", data }, inside);
}

/**
 * @param {Child} text
 * @param {Tone | (() => Tone)} [tone]
 * @param {string} [title]
 * @returns {HTMLElement}
 */
export function badge(text, tone = "neutral", title) {
  return h("span", { class: "badge", data: { tone }, title: title ?? null }, text);
}

/**
 * @param {string} title
 * @param {Child} text
 * @param {Child} [action]
 * @returns {HTMLElement}
 */
export function emptyState(title, text, action) {
  return h("div", { class: "empty-state" }, h("h2", null, title), h("p", null, text), action);
}

/**
 * @param {([string, Child] | null | false)[]} rows
 * @returns {HTMLElement}
 */
export function keyValue(rows) {
  return h(
    "dl",
    { class: "key-value" },
    rows.map((row) => row && h("div", null, h("dt", null, row[0]), h("dd", null, row[1]))),
  );
}

/**
 * @param {string | (() => string)} content
 * @param {string} [label]
 * @returns {HTMLElement}
 */
export function copyButton(content, label = "Copy") {
  return h("button", { type: "button", class: "plain small", on: { click: () => copy(typeof content === "function" ? content() : content) } }, label);
}

/** @param {string} content */
export async function copy(content) {
  try {
    await navigator.clipboard.writeText(content);
  } catch {
    // A page without TLS has no clipboard, except on this machine.
    const area = h("textarea", { class: "off-screen", value: content });
    document.body.append(area);
    area.select();
    const isDone = document.execCommand("copy");
    area.remove();
    if (!isDone) {
      toast("The browser did not allow copying.", { kind: "error" });
      return;
    }
  }
  toast("Copied");
}

/**
 * What a poll has found: grey bars while it loads for the first time, the error if there is one, the content otherwise.
 * An error that comes later stands above the last content.
 * @template T
 * @param {import("./signal.js").Signal<import("./api.js").Polled<T>> | import("./signal.js").Computed<import("./api.js").Polled<T>>} polled
 * @param {(value: T) => Child} content Runs anew with each value. To keep what is shown, make parts reactive inside instead.
 * @param {{lines?: number}} [more]
 * @returns {HTMLElement}
 */
export function loading(polled, content, more = {}) {
  return h(
    "div",
    { class: "loaded", aria: { busy: () => String(polled.value.value === undefined && !polled.value.error) } },
    () => {
      const { value, error } = polled.value;
      if (value === undefined && !error) return skeleton(more.lines ?? 5);
      return [error ? problem(error) : null, value === undefined ? null : content(value)];
    },
  );
}

/**
 * Grey bars in place of content.
 * @param {number} [lines]
 * @returns {HTMLElement}
 */
export function skeleton(lines = 5) {
  return h("div", { class: "skeleton", role: "status", aria: { label: "Loading" } }, Array.from({ length: lines }, () => h("span")));
}

/**
 * An error for the reader.
 * @param {unknown} error
 * @param {Child} [action]
 * @returns {HTMLElement}
 */
export function problem(error, action) {
  const isApi = error instanceof ApiError;
  const message = error instanceof Error ? error.message : String(error);
  const title = isApi && error.status === 403 ? "Not allowed" : isApi && error.status === 404 ? "Not found" : "That did not work";
  return h("div", { class: "problem", role: "alert" }, h("strong", null, title), h("p", null, message), action);
}

/**
 * A button for a change: disabled with the reason where it is not possible.
 * @param {string} label
 * @param {() => any} run
 * @param {{kind?: string, why?: () => string, title?: string}} [more]
 * @returns {HTMLButtonElement}
 */
export function actionButton(label, run, more = {}) {
  const why = more.why ?? (() => "");
  return h("button", { type: "button", class: more.kind ?? "plain", disabled: () => !!why(), title: () => why() || more.title || null, on: { click: run } }, label);
}

/**
 * Text in one line, cut with an ellipsis, whole in the title.
 * @param {string} text
 * @param {string} [kind]
 * @returns {HTMLElement}
 */
export function cut(text, kind = "") {
  return h("span", { class: ["cut", kind], title: text }, text);
}
