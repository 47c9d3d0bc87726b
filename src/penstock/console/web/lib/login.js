// Logging in: the form, the dialog that asks again when a session is over, the log-out, and the renewal of the session while
// somebody uses the page.

import { api, ApiError, expired, session } from "./api.js";
import { dialog } from "./dialog.js";
import { h } from "./dom.js";
import { field, form, textInput } from "./form.js";
import { BASE, navigate, place } from "./router.js";
import { effect, onDispose, signal, untracked } from "./signal.js";

/** Why a log-in at the identity provider failed, by the codes of /session/oidc. */
const FAILURES = /** @type {Record<string, string>} */ ({
  refused: "The identity provider did not log you in, or its answer was not accepted. The node's log says why.",
  expired: "The log-in took too long, or was begun in another window. Try again.",
  unreachable: "The identity provider does not answer. Try again later; the node's log says more.",
  busy: "Too many log-ins at the same time. Try again in a moment.",
});

const RENEW_MS_MIN = 5_000;
const RENEW_MS_MAX = 60_000;
const ASK_AGAIN_MS = 30_000;
const LOOK_MS = 2_000;

/** @param {string} code */
export function failureOf(code) {
  return FAILURES[code] ?? "";
}

/**
 * The fields of a log-in, and what sends them.
 * @param {string} [user]
 */
function passwordFields(user = "") {
  const name = textInput({ name: "username", autocomplete: "username", autocapitalize: "none", value: user, required: true });
  const password = textInput({ type: "password", name: "password", autocomplete: "current-password", required: true });
  (user ? password : name).autofocus = true;
  const send = async () => {
    if (!name.value) refuse(name, "Type the name of a user.");
    if (!password.value) refuse(password, "Type the password.");
    try {
      session.set({ ...session.peek(), ...(await api.post("/session", { user: name.value, password: password.value })) });
    } catch (error) {
      password.select();
      throw error instanceof ApiError && error.code === "login_failed" ? new Error("The user or the password is wrong.") : error;
    }
    password.value = "";
  };
  return { fields: [field("User", name), field("Password", password)], send };
}

/**
 * @param {HTMLInputElement} input
 * @param {string} why
 * @returns {never}
 */
function refuse(input, why) {
  input.focus();
  throw new Error(why);
}

/**
 * A link to the identity provider.
 * @param {string} then The page to come back to, below /console.
 * @param {boolean} inNewTab Whether it opens beside this page, which keeps what is typed.
 */
function providerLink(then, inNewTab) {
  const href = `/session/oidc?return=${encodeURIComponent(BASE + then)}`;
  const label = inNewTab ? "Log in at the identity provider, in a new tab" : "Log in at the identity provider";
  return h("a", { class: "button login-provider", href, target: inNewTab ? "_blank" : null, rel: inNewTab ? "noopener" : null }, label);
}

/**
 * The form of the log-in page.
 * @param {string} then The page to come back to, below /console.
 * @param {() => void} done
 */
export function loginForm(then, done) {
  const { schemes } = session.peek();
  const hasPassword = schemes.includes("password");
  const hasOidc = schemes.includes("oidc");
  if (!hasPassword && !hasOidc) {
    return h("p", null, "This node asks for a log-in that the console does not offer. Programs can use the API with their credentials.");
  }
  const { fields, send } = passwordFields();
  const onSubmit = async () => {
    await send();
    done();
  };
  return h(
    "div",
    { class: "stack" },
    hasPassword ? form({ fields, label: "Log in", onSubmit }) : null,
    hasPassword && hasOidc ? h("p", { class: "muted center" }, "or") : null,
    hasOidc ? providerLink(then, false) : null,
  );
}

/** Go to the log-in page, and back from there to the present page. */
export function toLogin() {
  const { path, query } = place();
  if (path.startsWith("/login")) return;
  const text = new URLSearchParams(query).toString();
  navigate(`/login?then=${encodeURIComponent(path + (text ? `?${text}` : ""))}`, { replace: true });
}

export async function logOut() {
  await api.delete("/session");
  session.set({ ...session.peek(), principal: null, expires_in_ms: null });
  navigate("/login");
}

/** @type {(() => void) | null} */
let closeDialog = null;
let dismissedAt = -ASK_AGAIN_MS;

/** Ask for the password again, over the page: what was typed in it stays. */
function askAgain() {
  if (closeDialog || performance.now() - dismissedAt < ASK_AGAIN_MS) return;
  const user = (session.peek().principal ?? "").replace(/^User:/, "");
  let isDone = false;
  const done = () => {
    isDone = true;
    closeDialog?.();
  };
  const look = setInterval(async () => {
    const found = await api.get("/session").catch(() => null);
    if (!found?.principal || isDone) return;
    session.set({ ...session.peek(), ...found });
    done();
  }, LOOK_MS);
  const { schemes } = session.peek();
  const { fields, send } = passwordFields(user);
  const hasPassword = schemes.includes("password");
  closeDialog = dialog({
    title: "Your session is over",
    body: h(
      "div",
      { class: "stack" },
      h("p", null, "Log in again to go on. What you typed stays on the page."),
      hasPassword ? fields : null,
      schemes.includes("oidc") ? providerLink("/login?done=1", true) : null,
    ),
    actions: [
      { label: "Log out", kind: "plain", run: leave },
      ...(hasPassword ? [{ label: "Log in", kind: /** @type {"primary"} */ ("primary"), run: () => send().then(done) }] : []),
    ],
    onClose: () => {
      clearInterval(look);
      closeDialog = null;
      if (!isDone) dismissedAt = performance.now();
    },
  });
}

function leave() {
  session.set({ ...session.peek(), principal: null, expires_in_ms: null });
  toLogin();
}

/** Ask for a log-in whenever a call was refused for want of one. */
export function watchExpiry() {
  effect(() => {
    if (expired.value > 0) untracked(() => (session.peek().principal ? askAgain() : toLogin()));
  });
}

/** Renew the session while somebody uses keyboard or mouse. What the page fetches by itself does not count. */
export function keepSession() {
  const renewedAt = signal(performance.now());
  let isRenewing = false;
  const used = async () => {
    const lasts = session.peek().expires_in_ms ?? null;
    if (lasts === null || isRenewing || closeDialog) return;
    const due = Math.min(Math.max(lasts / 4, RENEW_MS_MIN), RENEW_MS_MAX);
    if (performance.now() - renewedAt.peek() < due) return;
    isRenewing = true;
    try {
      session.set({ ...session.peek(), ...(await api.put("/session")) });
    } catch {
      // the next call says what is wrong
    } finally {
      renewedAt.set(performance.now());
      isRenewing = false;
    }
  };
  for (const kind of ["pointerdown", "keydown"]) {
    document.addEventListener(kind, used, { capture: true, passive: true });
    onDispose(() => document.removeEventListener(kind, used, { capture: true }));
  }
}
