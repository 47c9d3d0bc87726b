// Pages and their addresses. All addresses are real paths below /console/.
//
// A page is a module that exports `page(ctx)`, which returns a node or a promise of one, and `title`. A module is loaded
// when its page is first shown. A change of the query alone does not make the page anew: `ctx.query` is a signal.
// Parameters of the path that the module lists in `keeps` do not make it anew either; the page reads them from `location`.
// `location` changes when the previous page has ended, so no page sees the address of another.

import { h, mount } from "./dom.js";
import { computed, pageScope, signal, untracked } from "./signal.js";

export const BASE = "/console";

/** @typedef {{path: string, params: Record<string, string>, query: Record<string, string>}} Place */
/** @typedef {{params: Record<string, string>, query: import("./signal.js").Computed<Record<string, string>>, session: any}} Context */
/** @typedef {{page: (ctx: Context) => Node | Promise<Node>, title?: string | ((params: Record<string, string>) => string), keeps?: string[]}} PageModule */
/** @typedef {{parts: string[], load: () => Promise<PageModule>}} Route */

/** @type {Route[]} */
const routes = [];

/** Where the user is: the path without /console, the parameters of its route, and the query. */
export const location = signal(/** @type {Place} */ ({ path: "/", params: {}, query: {} }));

/**
 * @param {string} pattern such as "/topics/:topic/:tab?"
 * @param {() => Promise<any>} load
 */
export function route(pattern, load) {
  routes.push({ parts: pattern.split("/").filter(Boolean), load });
}

/**
 * @param {string} path below /console, with a query if there is one
 * @param {{replace?: boolean}} [how]
 */
export function navigate(path, how = {}) {
  const url = BASE + path;
  if (how.replace) history.replaceState(null, "", url);
  else if (url !== window.location.pathname + window.location.search) history.pushState(null, "", url);
  arrive();
}

/**
 * A link to a page. A click with a modifier key opens it as the browser does.
 * @param {string} path
 * @param {Record<string, any> | null} [props]
 * @param {...import("./dom.js").Child} children
 * @returns {HTMLAnchorElement}
 */
export function link(path, props, ...children) {
  const made = h("a", { href: BASE + path, ...props }, ...children);
  made.addEventListener("click", (event) => {
    if (event.defaultPrevented || event.button || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
    event.preventDefault();
    navigate(path);
  });
  return made;
}

/**
 * Change parameters of the query; null removes one.
 * @param {Record<string, string | number | boolean | null | undefined>} values
 * @param {{replace?: boolean}} [how]
 */
export function setQuery(values, how = {}) {
  const next = Object.fromEntries(new URLSearchParams(window.location.search));
  for (const [name, value] of Object.entries(values)) {
    if (value === null || value === undefined || value === "") delete next[name];
    else next[name] = String(value);
  }
  navigate((window.location.pathname.slice(BASE.length) || "/") + search(next), how);
}

/** @param {Record<string, string>} query */
function search(query) {
  const text = new URLSearchParams(query).toString();
  return text ? `?${text}` : "";
}

/**
 * A path of names, each encoded: path("topics", "a/b") is /topics/a%2Fb.
 * @param {...(string | number)} names
 */
export function path(...names) {
  return names.map((each) => `/${encodeURIComponent(each)}`).join("");
}

/** @type {HTMLElement | null} */
let outlet = null;
/** @type {(error: unknown) => Node} */
let showError = () => h("p", null, "This page cannot be shown.");
/** @type {any} */
let session = null;
/** @type {{route: Route, module: PageModule, params: Record<string, string>, end: () => void} | null} */
let current = null;
let arrivals = 0;
let hasFailed = false; // whether an error is shown in place of a page

/** Whether a page is being loaded. */
export const isLoading = signal(false);

/**
 * Show pages in an element from now on.
 * @param {HTMLElement} element
 * @param {any} theSession
 * @param {(error: unknown) => Node} errorPage
 */
export function start(element, theSession, errorPage) {
  outlet = element;
  session = theSession;
  showError = errorPage;
  window.addEventListener("popstate", arrive);
  arrive();
}

/** Where the browser is, before pages are shown too. @returns {{path: string, query: Record<string, string>}} */
export function place() {
  const path = window.location.pathname.slice(BASE.length) || "/";
  return { path, query: Object.fromEntries(new URLSearchParams(window.location.search)) };
}

/** Begin to load the module of the present address. */
export function warm() {
  const found = find(place().path.split("/").filter(Boolean).map(decoded));
  found?.[0].load().catch(() => {}); // it is asked for again, and the error shown then
}

/** Make the page anew if it could not be made. */
export function retry() {
  if (hasFailed) reload();
}

/** Make the present page anew. */
export function reload() {
  if (current) current.end();
  current = null;
  arrive();
}

/** @returns {[Route, Record<string, string>] | null} */
function find(/** @type {string[]} */ names) {
  for (const each of routes) {
    const params = match(each.parts, names);
    if (params) return [each, params];
  }
  return null;
}

/**
 * @param {string[]} parts
 * @param {string[]} names
 * @returns {Record<string, string> | null}
 */
function match(parts, names) {
  if (names.length > parts.length) return null;
  /** @type {Record<string, string>} */
  const params = {};
  for (const [at, part] of parts.entries()) {
    const name = names[at];
    if (!part.startsWith(":")) {
      if (part !== name) return null;
    } else if (name !== undefined) {
      params[part.slice(1).replace(/\?$/, "")] = name;
    } else if (!part.endsWith("?")) {
      return null;
    }
  }
  return params;
}

function arrive() {
  if (!outlet) return;
  const { path: whole, query } = place();
  const found = find(whole.split("/").filter(Boolean).map(decoded));
  const params = found ? found[1] : {};
  const next = { path: whole, params, query: same(location.peek().query, query) };
  if (found && current && current.route === found[0] && isKept(current, params)) {
    arrivals += 1; // a page that was on its way is not shown any more
    isLoading.set(false);
    current.params = params;
    location.set(next);
    setTitle(current.module, params);
  } else {
    show(found, next);
  }
}

/**
 * The old query if the new one is equal, so that what depends on it alone does not change.
 * @param {Record<string, string>} old
 * @param {Record<string, string>} query
 */
function same(old, query) {
  const names = Object.keys(query);
  return names.length === Object.keys(old).length && names.every((name) => old[name] === query[name]) ? old : query;
}

/** @param {string} name */
function decoded(name) {
  try {
    return decodeURIComponent(name);
  } catch {
    return name;
  }
}

/**
 * @param {{module: PageModule, params: Record<string, string>}} shown
 * @param {Record<string, string>} params
 */
function isKept(shown, params) {
  const keeps = shown.module.keeps ?? [];
  const names = new Set([...Object.keys(params), ...Object.keys(shown.params)]);
  return [...names].every((name) => keeps.includes(name) || params[name] === shown.params[name]);
}

/**
 * @param {[Route, Record<string, string>] | null} found
 * @param {Place} place
 */
async function show(found, place) {
  const arrival = ++arrivals;
  isLoading.set(true);
  /** @type {() => void} */
  let end = () => {};
  /** @type {Node} */
  let node;
  /** @type {PageModule | null} */
  let module = null;
  try {
    module = found && (await found[0].load());
    if (arrival !== arrivals) return;
    leave(place);
    if (!found || !module) throw new Error("There is no such page.");
    const { page } = module;
    const query = computed(() => location.value.query);
    /** @type {Promise<Node> | Node} */
    let made;
    [made, end] = pageScope(() => page({ params: found[1], query, session }));
    node = await made;
    if (arrival === arrivals) hasFailed = false;
  } catch (error) {
    if (arrival !== arrivals) return;
    hasFailed = true;
    leave(place);
    end();
    end = () => {};
    node = untracked(() => showError(error));
  }
  if (arrival !== arrivals) {
    end();
    return;
  }
  current = found && module ? { route: found[0], module, params: found[1], end } : null;
  isLoading.set(false);
  if (module) setTitle(module, found ? found[1] : {});
  if (outlet) {
    mount(outlet, node);
    outlet.scrollTop = 0;
    if (arrival > 1) outlet.focus({ preventScroll: true });
  }
}

/** The present page ends; then its successor's address is known. @param {Place} place */
function leave(place) {
  const previous = current;
  current = null;
  previous?.end();
  location.set(place);
}

/**
 * @param {PageModule} module
 * @param {Record<string, string>} params
 */
function setTitle(module, params) {
  const title = typeof module.title === "function" ? module.title(params) : module.title;
  document.title = title ? `${title} · Penstock` : "Penstock";
}
