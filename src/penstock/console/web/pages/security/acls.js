// ACLs: what principals may do with topics, groups, transactional ids and the cluster.

import { api, poll, whyNot } from "../../lib/api.js";
import { confirm, dialog } from "../../lib/dialog.js";
import { h } from "../../lib/dom.js";
import { entry, required, sent } from "../../lib/entry.js";
import { filterInput, select } from "../../lib/form.js";
import { count } from "../../lib/format.js";
import { kept } from "../../lib/kept.js";
import { actionButton, badge, emptyState } from "../../lib/layout.js";
import { link, path, setQuery } from "../../lib/router.js";
import { computed, signal } from "../../lib/signal.js";
import { table } from "../../lib/table.js";
import { toast } from "../../lib/toast.js";

/** @typedef {{resource_type: string, resource_name: string, principal: string, operation: string, permission: string, pattern: string, host: string}} Acl */

export const TYPES = ["topic", "group", "cluster", "transactional_id", "delegation_token", "user"];
/** Operations that each type of resource has, in Kafka. @type {Record<string, string[]>} */
export const OPERATIONS = {
  topic: ["read", "write", "create", "delete", "alter", "describe", "describe_configs", "alter_configs", "all"],
  group: ["read", "describe", "delete", "describe_configs", "alter_configs", "all"],
  cluster: ["create", "alter", "describe", "cluster_action", "describe_configs", "alter_configs", "idempotent_write", "all"],
  transactional_id: ["describe", "write", "two_phase_commit", "all"],
  delegation_token: ["describe", "all"],
  user: ["create_tokens", "describe_tokens", "all"],
};
const CLUSTER_NAME = "kafka-cluster";
const LISTED_MAX = 10_000;

/** @param {string} word */
export const plain = (word) => word.replaceAll("_", " ");

/** @param {string} text */
export const principalOf = (text) => (text.includes(":") ? text.trim() : `User:${text.trim()}`);

/** A link to what an ACL is about, if the console has a page for it. @param {Acl} acl */
function resource(acl) {
  const name = acl.resource_name;
  const isOne = acl.pattern === "literal" && name !== "*";
  const shown = acl.resource_type === "cluster" ? "the cluster" : isOne && acl.resource_type === "topic" ? link(path("topics", name), null, name) : isOne && acl.resource_type === "group" ? link(path("groups", name), null, name) : name;
  return [shown, acl.pattern === "prefixed" ? [" ", badge("prefix", "neutral", "All names that begin with it")] : null];
}

/**
 * The operations that a type of resource has.
 * @param {import("../../lib/signal.js").Computed<string>} kind
 * @param {import("../../lib/signal.js").Signal<string>} operation
 * @param {{all: boolean}} how Whether `all` is one of them.
 */
export function operationField(kind, operation, how) {
  return h("label", { class: "field" }, h("span", { class: "field-label" }, "Operation"), () => {
    const known = OPERATIONS[kind.value].filter((each) => how.all || each !== "all");
    if (!known.includes(operation.peek())) operation.set(known[0]);
    return select(known.map((each) => /** @type {[string, string]} */ ([each, plain(each)])), { value: operation });
  });
}

/** @param {string} permission */
const permissionBadge = (permission) => badge(permission, permission === "allow" ? "ok" : "bad");

/** @type {import("../security.js").Part} */
export function part({ query }, status) {
  if (!status.authorizer) {
    return emptyState("There are no ACLs", ["No authorizer is configured, so every client may do everything. Set ", h("code", null, "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer"), " and ", h("code", null, "super.users"), " in the settings of all nodes."]);
  }
  const filter = signal("");
  const principal = computed(() => query.value.principal ?? "");
  const kind = computed(() => query.value.type ?? "");
  const found = poll(/** @returns {Promise<{acls: Acl[], total: number}>} */ (signal) => api.get("/acls", { principal: principal.value, resource_type: kind.value, limit: LISTED_MAX }, { signal }), 10);
  return h(
    "div",
    null,
    h(
      "div",
      { class: "toolbar" },
      filterInput(filter, { placeholder: "Filter by principal, name or operation" }),
      select([["", "All resources"], ...TYPES.map((each) => /** @type {[string, string]} */ ([each, plain(each)]))], { value: kind.peek(), aria: { label: "Type of resource" }, onInput: (/** @type {string} */ text) => setQuery({ type: text }, { replace: true }) }),
      () => (principal.value ? h("button", { type: "button", class: "plain", title: "Show the ACLs of all principals", on: { click: () => setQuery({ principal: null }) } }, `${principal.value} ×`) : null),
      h("span", { class: "spacer-x" }),
      actionButton("Add ACL…", () => add(principal.peek(), found.refresh), { kind: "primary", why: whyNot }),
    ),
    kept(found, (value) => [
      () => (value.value.total > value.value.acls.length ? h("p", { class: "muted" }, `The first ${count(value.value.acls.length)} of ${count(value.value.total)}: choose a type of resource.`) : null),
      table({
        label: "ACLs",
        rows: computed(() => value.value.acls),
        key: (each) => JSON.stringify(each),
        filter,
        empty: emptyState("No ACLs", status.allow_without_acl ? "A resource without an ACL is open to everyone (allow.everyone.if.no.acl.found)." : "Without an ACL only super users may do anything."),
        columns: [
          { key: "principal", title: "Principal", value: (each) => each.principal, hint: (each) => each.principal },
          { key: "permission", title: "Permission", width: 116, value: (each) => each.permission, cell: (each) => permissionBadge(each.permission) },
          { key: "operation", title: "Operation", width: 150, value: (each) => each.operation, cell: (each) => plain(each.operation) },
          { key: "type", title: "Resource", width: 130, value: (each) => each.resource_type, cell: (each) => plain(each.resource_type) },
          { key: "name", title: "Name", value: (each) => each.resource_name, cell: resource, hint: (each) => each.resource_name },
          { key: "host", title: "From", width: 120, value: (each) => each.host, cell: (each) => (each.host === "*" ? "anywhere" : each.host) },
          { key: "remove", title: "Actions", width: 116, align: "right", sort: false, value: () => "", cell: (each) => actionButton("Remove…", () => remove(each, found.refresh), { kind: "danger small", why: whyNot }) },
        ],
      }),
    ]),
  );
}

/** @param {Acl} acl */
function sentence(acl) {
  const name = acl.resource_type === "cluster" ? "the cluster" : `${plain(acl.resource_type)} ${acl.resource_name}${acl.pattern === "prefixed" ? "…" : ""}`;
  return `${acl.principal} ${acl.permission === "allow" ? "may" : "may not"} ${plain(acl.operation)} ${name}${acl.host === "*" ? "" : ` from ${acl.host}`}`;
}

/**
 * @param {Acl} acl
 * @param {() => void} then
 */
function remove(acl, then) {
  confirm({
    title: "Remove this ACL?",
    text: h("p", null, h("strong", null, sentence(acl)), ". Connections that are open are affected at once."),
    label: "Remove",
    kind: "danger",
    action: async () => {
      const { resource_type, resource_name, pattern, principal, host, operation, permission } = acl;
      await api.delete("/acls", undefined, { resource_type, resource_name, pattern, principal, host, operation, permission });
      toast("The ACL is removed.");
      then();
    },
  });
}

/**
 * @param {string} given
 * @param {() => void} then
 */
function add(given, then) {
  const kind = entry("Type of resource", { name: "resource_type", value: "topic", options: TYPES.map((each) => /** @type {[string, string]} */ ([each, plain(each)])) });
  const principal = entry("Principal", { name: "principal", value: given, hint: "A user's name, or * for everyone.", check: required("Enter a user.") });
  const name = entry("Name", { name: "resource_name", hint: "* stands for all of the type.", check: (text) => (kind.value.peek() === "cluster" || text.trim() ? "" : "Enter a name, or *.") });
  const pattern = entry("Applies to", {
    name: "pattern",
    value: "literal",
    options: [
      ["literal", "this name"],
      ["prefixed", "names that begin with it"],
    ],
  });
  const operation = signal("read");
  const permission = entry("Permission", { name: "permission", value: "allow", options: ["allow", "deny"], hint: "A denial comes before all that allow." });
  const host = entry("From", { name: "host", value: "*", hint: "A client's address; * for anywhere.", check: required("Enter an address, or *.") });
  const entries = [principal, permission, kind, name, pattern, host];
  dialog({
    title: "Add an ACL",
    wide: true,
    body: h("div", { class: "grid-2" }, principal.node, permission.node, kind.node, operationField(kind.value, operation, { all: true }), h("div", { hidden: () => kind.value.value === "cluster" }, name.node), h("div", { hidden: () => kind.value.value === "cluster" }, pattern.node), host.node),
    actions: [
      { label: "Cancel", kind: "plain" },
      {
        label: "Add",
        kind: "primary",
        run: () =>
          sent(entries, async () => {
            const isCluster = kind.value.peek() === "cluster";
            const acl = {
              resource_type: kind.value.peek(),
              resource_name: isCluster ? CLUSTER_NAME : name.value.peek().trim(),
              pattern: isCluster ? "literal" : pattern.value.peek(),
              principal: principalOf(principal.value.peek()),
              host: host.value.peek().trim(),
              operation: operation.peek(),
              permission: permission.value.peek(),
            };
            await api.post("/acls", { acls: [acl] });
            toast(`${sentence(acl)}.`);
            then();
          }),
      },
    ],
  });
}
