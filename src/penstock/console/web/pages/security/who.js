// "May alice read orders?", and "Who may read orders?": what the authorizer decides, and by which rule.

import { api } from "../../lib/api.js";
import { h } from "../../lib/dom.js";
import { areRight, entry } from "../../lib/entry.js";
import { form } from "../../lib/form.js";
import { badge, card, emptyState, problem, skeleton } from "../../lib/layout.js";
import { setQuery } from "../../lib/router.js";
import { effect, signal } from "../../lib/signal.js";
import { table } from "../../lib/table.js";
import { TYPES, operationField, plain, principalOf } from "./acls.js";

/** @typedef {{is_allowed: boolean, reason: string}} Explanation */
/** @typedef {{principal: string, reason: string}} Decided */
/** @typedef {{everyone: boolean, reason: string, allowed: Decided[], denied: Decided[]}} WhoMay */

/** @type {import("../security.js").Part} */
export function part({ query }, status) {
  if (!status.authorizer) return emptyState("Everyone may do everything", "No authorizer is configured, so no rule decides.");
  const asked = query.peek();
  const kind = entry("Type of resource", { name: "type", value: TYPES.includes(asked.type) ? asked.type : "topic", options: TYPES.map((each) => /** @type {[string, string]} */ ([each, plain(each)])) });
  const name = entry("Name", { name: "name", value: asked.name ?? "", check: (text) => (kind.value.peek() === "cluster" || text.trim() ? "" : "Enter the name of the resource.") });
  const principal = entry("Principal", { name: "principal", value: asked.principal ?? "", hint: "Empty: all principals that may." });
  const host = entry("Client's address", { name: "host", value: asked.host ?? "127.0.0.1", check: (text) => (text.trim() ? "" : "Enter an address.") });
  const operation = signal(asked.operation ?? "read");
  const entries = [kind, name, principal, host];
  const answer = signal(/** @type {Node | null} */ (null));

  effect(() => {
    const { type, name: wanted, operation: what, principal: who, host: from } = query.value;
    if (!type || !what || (type !== "cluster" && !wanted)) return;
    answer.set(skeleton(3));
    const parameters = { resource_type: type, resource_name: type === "cluster" ? null : wanted, operation: what, host: from };
    const sentence = `${plain(what)} ${type === "cluster" ? "the cluster" : `${plain(type)} ${wanted}`}`;
    const call = who ? api.get("/acls/explain", { ...parameters, principal: principalOf(who) }).then((found) => explained(principalOf(who), sentence, found)) : api.get("/acls/who", parameters).then((found) => listed(sentence, found));
    call.then(
      (node) => answer.set(node),
      (error) => answer.set(problem(error)),
    );
  });

  return h(
    "div",
    null,
    card(
      "Who may do this?",
      form({
        label: "Ask",
        onSubmit: () => {
          if (!areRight(entries)) return;
          setQuery({ type: kind.value.peek(), name: kind.value.peek() === "cluster" ? null : name.value.peek().trim(), operation: operation.peek(), principal: principal.value.peek().trim(), host: host.value.peek().trim() });
        },
        fields: h(
          "div",
          { class: "grid-2" },
          operationField(kind.value, operation, { all: false }),
          kind.node,
          h("div", { hidden: () => kind.value.value === "cluster" }, name.node),
          principal.node,
          host.node,
        ),
      }),
    ),
    h("div", { aria: { live: "polite" } }, () => answer.value),
  );
}

/**
 * @param {string} principal
 * @param {string} sentence
 * @param {Explanation} found
 */
function explained(principal, sentence, found) {
  return card(null, h("p", null, badge(found.is_allowed ? "allowed" : "denied", found.is_allowed ? "ok" : "bad"), " ", h("strong", null, `${principal} ${found.is_allowed ? "may" : "may not"} ${sentence}`), `: ${found.reason}.`));
}

/**
 * @param {string} sentence
 * @param {WhoMay} found
 */
function listed(sentence, found) {
  const rows = [...found.allowed.map((each) => ({ ...each, may: true })), ...found.denied.map((each) => ({ ...each, may: false }))];
  return card(
    `Who may ${sentence}?`,
    h("p", { class: "toolbar" }, badge(found.everyone ? "everyone may" : "not everyone", found.everyone ? "warn" : "neutral"), `A principal without an ACL of its own: ${found.reason}.`),
    table({
      label: "Principals",
      rows,
      key: (each) => each.principal,
      empty: "No principal is named.",
      columns: [
        { key: "principal", title: "Principal", width: 240, value: (each) => each.principal },
        { key: "may", title: "Decision", width: 110, value: (each) => each.may, cell: (each) => badge(each.may ? "may" : "denied", each.may ? "ok" : "bad") },
        { key: "reason", title: "Because", value: (each) => each.reason, hint: (each) => each.reason },
      ],
    }),
  );
}
