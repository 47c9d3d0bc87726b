// The console: routes to pages, and the frame around them.

import { api, checkConnection, loadSession, session } from "./lib/api.js";
import { h, mount } from "./lib/dom.js";
import { problem } from "./lib/layout.js";
import { keepSession, toLogin, watchExpiry } from "./lib/login.js";
import { location, reload, retry, route, start, warm } from "./lib/router.js";
import { effect } from "./lib/signal.js";
import { shell } from "./shell.js";

/** @type {Record<string, string>} */
const PAGES = {
  "/": "overview",
  "/topics": "topics",
  "/topics/:topic/:tab?/:part?": "topic",
  "/search": "search",
  "/groups": "groups",
  "/groups/:group/:tab?": "group",
  "/pipelines/:pipeline?/:tab?": "pipelines",
  "/transactions/:transaction?": "transactions",
  "/schemas/:subject?/:version?": "schemas",
  "/cluster/:tab?/:id?": "cluster",
  "/security/:tab?/:id?": "security",
  "/labs/:lab?/:step?": "labs",
  "/login": "login",
};
for (const [pattern, name] of Object.entries(PAGES)) route(pattern, () => import(`./pages/${name}.js`));

/** @param {unknown} error */
function errorPage(error) {
  const again = h("button", { type: "button", class: "plain", on: { click: () => window.location.reload() } }, "Reload");
  // Browsers say nothing about why a module could not be loaded.
  if (error instanceof TypeError && /import|module/i.test(error.message)) {
    checkConnection();
    return problem(new Error("This page could not be loaded from the node. It may have been upgraded, or does not have this page."), again);
  }
  if (!(error instanceof Error && error.name === "ApiError")) console.warn(error);
  return problem(error, again);
}

/** `/` leads to the page's filter. @param {KeyboardEvent} event */
function shortcut(event) {
  if (event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey) return;
  const target = /** @type {HTMLElement} */ (event.target);
  if (target.closest("input, textarea, select, [contenteditable], dialog")) return;
  const filter = /** @type {HTMLElement | null} */ (document.querySelector("[data-filter], main input[type=search]"));
  if (!filter) return;
  event.preventDefault();
  filter.focus();
}

async function begin() {
  const { frame, outlet } = shell();
  mount(/** @type {HTMLElement} */ (document.getElementById("app")), frame);
  document.addEventListener("keydown", shortcut);
  warm();
  await loadSession().catch(() => {}); // the banner says that the node is away
  let wasDown = false;
  effect(() => {
    if (api.connection.value === "up" && wasDown) loadSession().then(retry, () => {});
    wasDown = api.connection.value === "down";
  });
  const { login_required, principal } = session.peek();
  if (login_required && !principal) toLogin();
  start(outlet, session, errorPage);
  watchExpiry();
  keepSession();
  // After a log-in or a log-out, what is shown may be another.
  let user = session.peek().principal;
  effect(() => {
    const now = session.value.principal;
    if (now !== user) {
      user = now;
      if (!location.peek().path.startsWith("/login")) reload();
    }
  });
}

begin();
