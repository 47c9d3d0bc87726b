// The log-in page. It leads back to the page that the user wanted.

import { session } from "../lib/api.js";
import { h } from "../lib/dom.js";
import { problem } from "../lib/layout.js";
import { failureOf, loginForm } from "../lib/login.js";
import { link, navigate } from "../lib/router.js";

export const title = "Log in";

/** @param {import("../lib/router.js").Context} ctx */
export function page(ctx) {
  const { then: wanted = "/", failed = "", done } = ctx.query.peek();
  const then = wanted.startsWith("/") && !wanted.startsWith("/login") ? wanted : "/";
  const { principal, login_required } = session.peek();
  if (done && principal) return box(h("p", null, "You are logged in as ", h("b", null, principal), ". You can close this tab."));
  if (principal || !login_required) {
    return box(h("p", null, login_required ? `You are logged in as ${principal}.` : "This node asks for no log-in."), link(then, { class: "button" }, "Go on"));
  }
  const why = failureOf(failed);
  return box(why ? problem(new Error(why)) : null, loginForm(then, () => navigate(then, { replace: true })));
}

/** @param {...import("../lib/dom.js").Child} children */
function box(...children) {
  return h("section", { class: "login-box card" }, h("h1", null, title), ...children);
}
