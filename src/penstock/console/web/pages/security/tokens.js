// Delegation tokens: names and passwords that stand for a user until they expire.

import { api, poll, whyNot } from "../../lib/api.js";
import { confirm, dialog } from "../../lib/dialog.js";
import { h } from "../../lib/dom.js";
import { entry, sent, wholeNumber } from "../../lib/entry.js";
import { ago, time, utc } from "../../lib/format.js";
import { kept } from "../../lib/kept.js";
import { actionButton, badge, copyButton, cut, emptyState, keyValue } from "../../lib/layout.js";
import { computed } from "../../lib/signal.js";
import { table } from "../../lib/table.js";
import { toast } from "../../lib/toast.js";
import { principalOf } from "./acls.js";

/** @typedef {{token_id: string, owner: string, requester: string, renewers: string[], issued_ms: number, expires_ms: number, renewable_until_ms: number}} Token */

const HOUR_MS = 3_600_000;
const HOURS_MAX = 100_000;
const ANONYMOUS = "User:ANONYMOUS";

/** @type {import("../security.js").Part} */
export function part(_, status) {
  if (!status.tokens) {
    return emptyState("Delegation tokens are off", ["A token stands for its owner until it expires: a job can be given one instead of a password. Set ", h("code", null, "delegation.token.secret.key"), ", the same at all nodes, and restart them."]);
  }
  if (status.principal === ANONYMOUS) return emptyState("Log in to use tokens", "Delegation tokens are for users that have logged in, and this port asks for no log-in. With the command line: penstock tokens create --client-config FILE.");
  const found = poll(/** @returns {Promise<{tokens: Token[]}>} */ (signal) => api.get("/tokens", null, { signal }), 10);
  return h(
    "div",
    null,
    h("div", { class: "toolbar" }, h("span", { class: "muted" }, "Tokens that you own, requested or may renew, and those that ACLs let you see."), h("span", { class: "spacer-x" }), actionButton("Create token…", () => create(found.refresh), { kind: "primary", why: whyNot })),
    kept(found, (value) =>
      table({
        label: "Tokens",
        rows: computed(() => value.value.tokens),
        key: (each) => each.token_id,
        sort: { key: "expires" },
        empty: emptyState("No tokens", "A token stands for its owner until it expires: a job can be given one instead of a password."),
        columns: [
          { key: "id", title: "Token id", value: (each) => each.token_id, cell: (each) => h("span", { class: "mono" }, each.token_id), hint: (each) => each.token_id },
          { key: "owner", title: "Owner", width: 150, value: (each) => each.owner, cell: (each) => cut(each.owner) },
          { key: "renewers", title: "Renewers", width: 150, value: (each) => each.renewers.join(", ") || "–" },
          { key: "expires", title: "Expires", width: 140, align: "right", value: (each) => each.expires_ms, cell: (each) => (each.expires_ms < Date.now() ? badge("expired", "warn") : ago(each.expires_ms)), hint: (each) => utc(each.expires_ms) },
          { key: "until", title: "Renewable until", width: 150, align: "right", value: (each) => each.renewable_until_ms, cell: (each) => ago(each.renewable_until_ms), hint: (each) => utc(each.renewable_until_ms) },
          { key: "actions", title: "Actions", width: 180, align: "right", sort: false, value: () => "", cell: (each) => [actionButton("Renew", () => renew(each, found.refresh), { kind: "plain small", why: whyNot }), " ", actionButton("Remove…", () => remove(each, found.refresh), { kind: "danger small", why: whyNot })] },
        ],
      }),
    ),
  );
}

/** @param {() => void} then */
function create(then) {
  const owner = entry("Owner", { name: "owner", hint: "Empty: yourself. For another user you need CreateTokens on it." });
  const renewers = entry("Renewers", { name: "renewers", hint: "Users that may renew it too, separated by commas." });
  const hours = entry("Renewable for", { name: "max_lifetime_ms", type: "number", hint: "Hours. Empty: as long as the cluster allows.", check: wholeNumber(1, HOURS_MAX, { optional: true }), props: { min: 1 } });
  const entries = [owner, renewers, hours];
  dialog({
    title: "Create a token",
    body: h("div", { class: "stack" }, entries.map((each) => each.node)),
    actions: [
      { label: "Cancel", kind: "plain" },
      {
        label: "Create",
        kind: "primary",
        run: () =>
          sent(entries, async () => {
            const named = renewers.value.peek().split(",").map((each) => each.trim()).filter(Boolean);
            const made = await api.post("/tokens", {
              owner: owner.value.peek().trim() ? principalOf(owner.value.peek()) : null,
              renewers: named.map(principalOf),
              max_lifetime_ms: hours.value.peek().trim() ? Number(hours.value.peek()) * HOUR_MS : null,
            });
            then();
            show(made);
          }),
      },
    ],
  });
}

/** The only time that the password is shown. @param {{token: Token, password: string}} made */
function show({ token, password }) {
  dialog({
    title: "The token is created",
    body: h(
      "div",
      { class: "stack" },
      h("p", null, "Copy the password now: it is not shown again. Clients log in with SCRAM and ", h("code", null, "tokenauth=true"), "."),
      keyValue([
        ["Owner", token.owner],
        ["User name", [h("code", { class: "wrap" }, token.token_id), " ", copyButton(token.token_id)]],
        ["Password", [h("code", { class: "wrap", data: { password: "true" } }, password), " ", copyButton(password)]],
        ["Expires", time(token.expires_ms)],
        ["Renewable until", time(token.renewable_until_ms)],
      ]),
    ),
    actions: [{ label: "Done", kind: "primary" }],
  });
}

/**
 * @param {Token} token
 * @param {() => void} then
 */
async function renew(token, then) {
  try {
    const done = await api.post(`/tokens/${encodeURIComponent(token.token_id)}/renew`, {});
    toast(`The token expires ${ago(done.expires_ms)}.`);
    then();
  } catch (error) {
    toast(error instanceof Error ? error.message : String(error), { kind: "error" });
  }
}

/**
 * @param {Token} token
 * @param {() => void} then
 */
function remove(token, then) {
  confirm({
    title: "Remove this token?",
    text: `Token ${token.token_id} of ${token.owner} can no longer log in.`,
    label: "Remove",
    kind: "danger",
    action: async () => {
      await api.delete(`/tokens/${encodeURIComponent(token.token_id)}`);
      toast("The token is removed.");
      then();
    },
  });
}
