// Calls of the HTTP API of the node that this page came from; who is logged in; whether the node answers.

import { computed, effect, onDispose, signal, untracked } from "./signal.js";
import { readEvents } from "./event-stream.js";

/** @typedef {Record<string, string | number | boolean | null | undefined>} QueryValues */
/** @typedef {{principal: string | null, mode: "full" | "read-only" | "off", login_required: boolean, schemes: string[], expires_in_ms?: number | null, node_id: number | null, cluster_id: string, version: string}} Session */
/**
 * @template T
 * @typedef {{value: T | undefined, error: ApiError | null, loading: boolean}} Polled
 */

/** An error response, or no response at all: then the status is 0 and the code `unreachable`. */
export class ApiError extends Error {
  /**
   * @param {number} status
   * @param {string} code
   * @param {string} message
   * @param {Record<string, any>} [more]
   */
  constructor(status, code, message, more = {}) {
    super(message);
    this.name = "ApiError";
    this.status = status;
    this.code = code;
    this.more = more;
  }
}

/** "down" from the first request that got no response until the node answers again. */
const connection = signal(/** @type {"up" | "down"} */ ("up"));

/** Calls that got the status 401, for whoever shows the log-in. */
export const expired = signal(0);

const PROBE_MS = 1000;
const AWAY = "The node does not answer.";
let isProbing = false;

function lost() {
  connection.set("down");
  if (isProbing) return;
  isProbing = true;
  setTimeout(probe, PROBE_MS);
}

async function probe() {
  if (await isThere()) {
    isProbing = false;
    connection.set("up");
  } else {
    setTimeout(probe, PROBE_MS);
  }
}

async function isThere() {
  try {
    return (await fetch("/session", { cache: "no-store", headers: { "X-Penstock-Console": "1" } })).ok;
  } catch {
    return false;
  }
}

/** Find out whether the node answers, after something else than a call has failed. */
export async function checkConnection() {
  if (!(await isThere())) lost();
}

/**
 * @param {string} path
 * @param {QueryValues | null} [query]
 */
export function url(path, query) {
  const given = Object.entries(query ?? {}).filter(([, value]) => value !== null && value !== undefined && value !== "");
  const text = new URLSearchParams(given.map(([name, value]) => [name, String(value)])).toString();
  return text ? `${path}?${text}` : path;
}

/**
 * @param {string} method
 * @param {string} path
 * @param {{query?: QueryValues | null, body?: any, signal?: AbortSignal, accept?: string, headers?: Record<string, string>}} more
 * @returns {Promise<Response>}
 */
async function send(method, path, more) {
  /** @type {Record<string, string>} */
  const headers = { Accept: more.accept ?? "application/json", "X-Penstock-Console": "1", ...more.headers };
  if (more.body !== undefined) headers["Content-Type"] = "application/json";
  /** @type {Response} */
  let response;
  try {
    response = await fetch(url(path, more.query), {
      method,
      headers,
      body: more.body === undefined ? undefined : JSON.stringify(more.body),
      signal: more.signal,
      credentials: "same-origin",
    });
  } catch (error) {
    if (more.signal?.aborted) throw error;
    lost();
    throw new ApiError(0, "unreachable", AWAY);
  }
  if (response.ok) return response;
  throw await failure(response);
}

/** @param {Response} response */
async function failure(response) {
  /** @type {any} */
  let found = null;
  try {
    found = (await response.json()).error;
  } catch {
    // Not an error of the API: a proxy says that the node is away.
    if (response.status >= 502 && response.status <= 504) {
      lost();
      return new ApiError(0, "unreachable", AWAY);
    }
  }
  if (response.status === 401 && found?.code !== "login_failed") expired.update((n) => n + 1);
  const { code, message, ...more } = found ?? {};
  return new ApiError(response.status, code ?? "error", sentence(message ?? `The response has status ${response.status}.`), more);
}

/**
 * Messages of the API begin in lower case and have no full stop.
 * @param {string} message
 */
function sentence(message) {
  const text = message.charAt(0).toUpperCase() + message.slice(1);
  return /[.!?]$/.test(text) ? text : `${text}.`;
}

/** @param {Response} response */
async function content(response) {
  if (response.status === 204) return null;
  try {
    return await response.json();
  } catch (error) {
    if (error instanceof SyntaxError) throw new ApiError(response.status, "bad_json", "The response is not JSON.");
    lost();
    throw new ApiError(0, "unreachable", "The connection broke while the response was read.");
  }
}

export const api = {
  connection,

  /**
   * @param {string} path
   * @param {QueryValues | null} [query]
   * @param {{signal?: AbortSignal}} [how]
   * @returns {Promise<any>}
   */
  get: async (path, query, how = {}) => {
    try {
      return await content(await send("GET", path, { query, ...how }));
    } catch (error) {
      how.signal?.throwIfAborted();
      throw error;
    }
  },
  /** @param {string} path @param {any} [body] @param {QueryValues} [query] @returns {Promise<any>} */
  post: async (path, body, query) => content(await send("POST", path, { query, body })),
  /** @param {string} path @param {any} [body] @param {QueryValues} [query] @returns {Promise<any>} */
  put: async (path, body, query) => content(await send("PUT", path, { query, body })),
  /** @param {string} path @param {any} [body] @param {QueryValues} [query] @returns {Promise<any>} */
  patch: async (path, body, query) => content(await send("PATCH", path, { query, body })),
  /** @param {string} path @param {any} [body] @param {QueryValues} [query] @returns {Promise<any>} */
  delete: async (path, body, query) => content(await send("DELETE", path, { query, body })),

  /**
   * Lines of JSON, as they arrive. Resolves at the end.
   * @param {string} path
   * @param {QueryValues | null} query
   * @param {(item: any) => void} onItem
   * @param {{signal?: AbortSignal, method?: string, body?: any}} [how]
   */
  lines: async (path, query, onItem, how = {}) => {
    const response = await send(how.method ?? "GET", path, { query, accept: "application/x-ndjson", ...how });
    const reader = textOf(response).getReader();
    let rest = "";
    try {
      for (;;) {
        const { value, done } = await reader.read();
        if (done) break;
        const lines = (rest + value).split("\n");
        rest = lines.pop() ?? "";
        for (const line of lines) if (line.trim()) onItem(JSON.parse(line));
      }
    } catch (error) {
      if (how.signal?.aborted || error instanceof SyntaxError || error instanceof ApiError) throw error;
      lost();
      throw new ApiError(0, "unreachable", "The connection broke before the end of the response.");
    } finally {
      reader.cancel().catch(() => {});
    }
    if (rest.trim()) onItem(JSON.parse(rest));
  },

  /**
   * Server-sent events. Reconnects after the last event that has come, until it is closed, the server refuses, or an
   * event `end` has come. Ends with the scope.
   * @param {string} path
   * @param {QueryValues | null} query
   * @param {{onEvent: (event: {event: string, data: any, id: string}) => void, onOpen?: () => void, onError?: (error: ApiError) => void}} on
   * @returns {() => void} closes it
   */
  events: (path, query, on) => {
    const control = new AbortController();
    const close = () => control.abort();
    const open = (/** @type {string} */ lastId) =>
      send("GET", path, {
        query,
        accept: "text/event-stream",
        signal: control.signal,
        headers: lastId ? { "Last-Event-ID": lastId } : {},
      }).then(textOf);
    readEvents(open, control.signal, { ...on, onError: (error) => on.onError?.(asApiError(error)) });
    onDispose(close);
    return close;
  },
};

/**
 * @param {Response} response
 * @returns {ReadableStream<string>}
 */
function textOf(response) {
  const body = response.body ?? new ReadableStream({ start: (control) => control.close() });
  return body.pipeThrough(/** @type {any} */ (new TextDecoderStream()));
}

/** @param {unknown} error */
function asApiError(error) {
  if (error instanceof ApiError) return error;
  return new ApiError(0, "error", error instanceof Error ? error.message : String(error));
}

/** Who uses this page, and what of. */
export const session = signal(
  /** @type {Session} */ ({
    principal: null,
    mode: "full",
    login_required: false,
    schemes: [],
    node_id: null,
    cluster_id: "",
    version: "",
  }),
);

/** Ask the node again who is logged in. */
export async function loadSession() {
  try {
    session.set({ ...session.peek(), ...(await api.get("/session")) });
  } catch (error) {
    if (!(error instanceof ApiError) || error.status !== 404) throw error;
    const health = await api.get("/health").catch(() => ({}));
    const { node_id = null, cluster_id = "", version = "" } = health;
    session.set({ ...session.peek(), node_id, cluster_id, version });
  }
}

/**
 * Why the console cannot do this; empty if it can. The node decides again, by the ACLs of the user.
 * @param {string} [_action] such as "write"
 */
export function whyNot(_action) {
  return session.value.mode === "read-only" ? "This console is read-only (console.mode)." : "";
}

/**
 * Whether the console may change something.
 * @param {string} [action]
 */
export function can(action) {
  return !whyNot(action);
}

const POLL_S_MIN = 2;

/**
 * Ask again and again while the page is visible. What `fn` reads of signals before its first `await` is asked for anew
 * when it changes. While the node is away, the last value stays.
 * @template T
 * @param {(signal: AbortSignal) => Promise<T>} fn
 * @param {number} seconds
 * @returns {import("./signal.js").Computed<Polled<T>> & {refresh: () => void}}
 */
export function poll(fn, seconds) {
  const state = signal(/** @type {Polled<T>} */ ({ value: undefined, error: null, loading: true }));
  const turn = signal(0);
  const next = () => turn.update((n) => n + 1);
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let timer;
  let isDue = false;

  const due = () => {
    isDue = document.hidden || connection.peek() === "down";
    if (!isDue) next();
  };
  const wake = () => {
    if (isDue && !document.hidden && connection.peek() === "up") due();
  };
  document.addEventListener("visibilitychange", wake);
  effect(() => {
    if (connection.value === "up") untracked(wake);
  });
  effect(() => {
    turn.value;
    const control = new AbortController();
    clearTimeout(timer);
    isDue = false;
    const before = state.peek();
    if (!before.loading) untracked(() => state.set({ ...before, loading: true }));
    const later = () => {
      timer = setTimeout(due, Math.max(seconds, POLL_S_MIN) * 1000);
    };
    // `fn` runs in this effect, so that what it reads is watched.
    Promise.resolve(fn(control.signal)).then(
      (value) => {
        if (control.signal.aborted) return;
        state.set({ value, error: null, loading: false });
        later();
      },
      (error) => {
        if (control.signal.aborted) return;
        state.set({ value: state.peek().value, error: asApiError(error), loading: false });
        later();
      },
    );
    onDispose(() => {
      control.abort();
      clearTimeout(timer);
    });
  });
  onDispose(() => document.removeEventListener("visibilitychange", wake));
  const result = computed(() => state.value);
  return Object.assign(result, { refresh: next });
}
