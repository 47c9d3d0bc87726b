// The frame around every page: the list of pages on the left, which is a menu on narrow screens; a banner while the node
// does not answer; the node, the user and the theme at the bottom.

import { api, session } from "./lib/api.js";
import { h, svg } from "./lib/dom.js";
import { logOut } from "./lib/login.js";
import { isLoading, link, location } from "./lib/router.js";
import { effect, signal } from "./lib/signal.js";
import { applyTheme, nextTheme, theme } from "./lib/theme.js";

/** Names of pages, their paths, and icons as paths of 16 x 16. */
const PAGES = /** @type {[string, string, string][]} */ ([
  ["Overview", "/", "M2 9h3v5H2zM6.5 5h3v9h-3zM11 2h3v12h-3z"],
  ["Topics", "/topics", "M2 3h12v2.5H2zM2 6.75h12v2.5H2zM2 10.5h12V13H2z"],
  ["Groups", "/groups", "M5.5 7.5a2.5 2.5 0 1 0 0-5 2.5 2.5 0 0 0 0 5zM1 13.5c0-2.5 2-4.5 4.5-4.5s4.5 2 4.5 4.5zM11 7.5a2 2 0 1 0 0-4 2 2 0 0 0 0 4zM11.5 13.5H15c0-2.3-1.6-4-4-4"],
  ["Search", "/search", "M7 2a5 5 0 1 0 3 9l3.5 3.5 1-1L11 10a5 5 0 0 0-4-8zm0 1.6a3.4 3.4 0 1 1 0 6.8 3.4 3.4 0 0 1 0-6.8z"],
  ["Pipelines", "/pipelines", "M1 5h4V2l5 4.5L5 11V8H1zM11 2h4v12h-4z"],
  ["Transactions", "/transactions", "M2 5h9V2l4 4-4 4V7H2zM14 11H5V8l-4 4 4 4v-3h9z"],
  ["Schemas", "/schemas", "M3 1h7l3 3v11H3zM5 6h6v1.3H5zM5 9h6v1.3H5zM5 12h4v1.3H5z"],
  ["Cluster", "/cluster", "M2 2h12v5H2zM2 9h12v5H2zM4 4h2v1H4zM4 11h2v1H4z"],
  ["Security", "/security", "M8 1l6 2.2V8c0 3.4-2.5 5.7-6 7-3.5-1.3-6-3.6-6-7V3.2z"],
  ["Labs", "/labs", "M6 1h4v1.4H9.4V6l4 7.2c.4.8-.1 1.8-1 1.8H3.6c-.9 0-1.4-1-1-1.8l4-7.2V2.4H6z"],
]);

/** Pages that are listed only when the node has them. */
export const hasSchemas = signal(false);

/** @returns {{frame: HTMLElement, outlet: HTMLElement}} */
export function shell() {
  const isOpen = signal(false);
  const outlet = h("main", { id: "main", tabIndex: -1 });
  const menu = h(
    "button",
    { type: "button", class: "icon menu", aria: { label: "Menu", expanded: () => String(isOpen.value), controls: "sidebar" }, on: { click: () => isOpen.update((now) => !now) } },
    icon("M1 3h14v1.6H1zM1 7.2h14v1.6H1zM1 11.4h14V13H1z"),
  );
  const sidebar = h(
    "div",
    { class: "sidebar", id: "sidebar", data: { open: () => (isOpen.value ? "true" : null) } },
    h("nav", { aria: { label: "Pages" } }, PAGES.map(entry)),
    foot(),
  );
  const frame = h(
    "div",
    { class: "frame" },
    h("a", { class: "skip", href: "#main", on: { click: (/** @type {Event} */ event) => (event.preventDefault(), outlet.focus()) } }, "Skip to the page"),
    h("header", { class: "topbar" }, link("/", { class: "brand", aria: { label: "Penstock, overview" } }, logo(), "Penstock"), menu),
    sidebar,
    h("div", { class: "content" }, banner(), h("div", { class: "progress", hidden: () => !isLoading.value }), outlet),
  );
  effect(() => {
    location.value; // a page was chosen
    isOpen.set(false);
  });
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && isOpen.peek()) {
      isOpen.set(false);
      menu.focus();
    }
  });
  effect(() => {
    document.body.classList.toggle("no-session", session.value.login_required && !session.value.principal);
  });
  applyTheme();
  return { frame, outlet };
}

/** @param {[string, string, string]} page */
function entry([name, path, shape]) {
  const isCurrent = () => {
    const now = location.value.path;
    return path === "/" ? now === "/" : now === path || now.startsWith(`${path}/`);
  };
  const made = link(path, { aria: { current: () => (isCurrent() ? "page" : null) } }, icon(shape), h("span", null, name));
  if (name === "Schemas") effect(() => (made.hidden = !hasSchemas.value && !isCurrent()));
  return made;
}

/** @param {string} shape */
function icon(shape) {
  return svg("svg", { viewBox: "0 0 16 16", width: 16, height: 16, "aria-hidden": "true", focusable: "false" }, svg("path", { d: shape, fill: "currentColor" }));
}

function logo() {
  return svg(
    "svg",
    { viewBox: "0 0 32 32", width: 22, height: 22, "aria-hidden": "true" },
    svg("rect", { width: 32, height: 32, rx: 7, fill: "#0f766e" }),
    svg("path", { d: "M7 10h13a5 5 0 0 1 5 5v0a5 5 0 0 1-5 5H12v5", fill: "none", stroke: "#fff", "stroke-width": 3, "stroke-linecap": "round", "stroke-linejoin": "round" }),
  );
}

function banner() {
  return h(
    "div",
    { class: "banner", role: "alert", hidden: () => api.connection.value === "up" },
    () => (api.connection.value === "down" ? "The node does not answer. Trying again; what you typed stays here." : ""),
  );
}

function foot() {
  const user = () => (session.value.login_required ? (session.value.principal ?? "") : "");
  return h(
    "footer",
    { class: "sidebar-foot" },
    h(
      "div",
      { class: "who row spread", hidden: () => !user() },
      h("span", { class: "cut", title: user }, user),
      h("button", { type: "button", class: "link", hidden: () => (session.value.expires_in_ms ?? null) === null, on: { click: logOut } }, "Log out"),
    ),
    h("div", { hidden: () => session.value.mode !== "read-only" }, h("span", { class: "badge", data: { tone: "info" } }, "read-only")),
    h(
      "div",
      { class: "node-line", title: () => `Cluster ${session.value.cluster_id}` },
      () => (session.value.node_id === null ? "" : `Node ${session.value.node_id} · ${session.value.version}`),
    ),
    h(
      "div",
      { class: "row" },
      h("button", { type: "button", class: "link", on: { click: nextTheme }, title: "Light, dark, or as the system" }, () => `Theme: ${theme.value}`),
      h("a", { href: "/docs" }, "API docs"),
    ),
  );
}
