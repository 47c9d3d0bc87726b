// Security: users, ACLs, who may do what, quotas, delegation tokens, the audit.

import { api } from "../lib/api.js";
import { h } from "../lib/dom.js";
import { pageHeader, tabs } from "../lib/layout.js";
import { signal } from "../lib/signal.js";

/** @typedef {{principal: string, authorizer: boolean, allow_without_acl: boolean, login: string[], mechanisms: string[], tokens: boolean, audit: boolean, audit_topic: string | null}} Status */
/** @typedef {(ctx: import("../lib/router.js").Context, status: Status) => Node} Part */

export const title = "Security";

/** @type {[string, string][]} */
const TABS = [
  ["users", "Users"],
  ["acls", "ACLs"],
  ["who", "Who may …?"],
  ["quotas", "Quotas"],
  ["tokens", "Tokens"],
  ["audit", "Audit"],
];

/** @type {Record<string, () => Promise<{part: Part}>>} */
const PARTS = {
  users: () => import("./security/users.js"),
  acls: () => import("./security/acls.js"),
  who: () => import("./security/who.js"),
  quotas: () => import("./security/quotas.js"),
  tokens: () => import("./security/tokens.js"),
  audit: () => import("./security/audit.js"),
};

/** @param {import("../lib/router.js").Context} ctx */
export async function page(ctx) {
  const tab = ctx.params.tab ?? "users";
  if (!(tab in PARTS)) throw new Error("There is no such page.");
  /** @type {[{part: Part}, Status]} */
  const [{ part }, status] = await Promise.all([PARTS[tab](), api.get("/security")]);
  return h("div", null, pageHeader({ title }), notice(status), tabs(TABS, signal(tab), { href: (id) => `/security/${id}` }), part(ctx, status));
}

/** What is open, said plainly. @param {Status} status */
function notice(status) {
  if (status.authorizer && status.login.length) return null;
  const what = status.login.length
    ? "Clients log in here, and every user may do everything: there is no authorizer."
    : status.authorizer
      ? "ACLs are enforced, and clients of this port do not log in: all of them are User:ANONYMOUS."
      : "This cluster is open: clients do not log in here, and everyone may do everything.";
  return h(
    "details",
    { class: "problem" },
    h("summary", null, h("strong", null, "Not secured. "), what),
    h("p", null, "A secured node, with certificates, log-ins, ACLs and a first user:"),
    h("pre", { class: "block", tabIndex: 0 }, "penstock secure init secrets\npenstock up --config secrets/node.properties"),
    h("p", null, "To secure a running cluster step by step, see “Security” in the documentation (docs/security.md). ACLs need ", h("code", null, "authorizer.class.name"), ", log-ins at this port ", h("code", null, "http.security.protocol"), "."),
  );
}
