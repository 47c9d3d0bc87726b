// Quotas: what users, client ids and addresses may use of each broker.

import { api, poll, whyNot } from "../../lib/api.js";
import { confirm, dialog } from "../../lib/dialog.js";
import { h } from "../../lib/dom.js";
import { entry, sent, wholeNumber } from "../../lib/entry.js";
import { filterInput } from "../../lib/form.js";
import { count, rate } from "../../lib/format.js";
import { kept } from "../../lib/kept.js";
import { actionButton, emptyState } from "../../lib/layout.js";
import { computed, signal } from "../../lib/signal.js";
import { table } from "../../lib/table.js";
import { toast } from "../../lib/toast.js";

/** @typedef {{user?: string | null, client_id?: string | null, ip?: string | null}} Entity */
/** @typedef {{entity: Entity, limits: Record<string, number>}} Quota */

const WHOLE_MAX = 2 ** 53;
/** @param {string} text */
const number = (text) => (!text.trim() || Number(text) > 0 ? "" : "Expected a number above 0.");

/** @type {{key: string, label: string, hint: string, of: "client" | "ip", check: (text: string) => string, show: (n: number) => string}[]} */
const LIMITS = [
  { key: "producer_byte_rate", label: "Produce", hint: "bytes a second", of: "client", check: wholeNumber(1, WHOLE_MAX, { optional: true }), show: (n) => rate(n, "bytes") },
  { key: "consumer_byte_rate", label: "Fetch", hint: "bytes a second", of: "client", check: wholeNumber(1, WHOLE_MAX, { optional: true }), show: (n) => rate(n, "bytes") },
  { key: "request_percentage", label: "Requests", hint: "percent of one core", of: "client", check: number, show: (n) => `${n}%` },
  { key: "controller_mutation_rate", label: "Changes", hint: "partitions created or deleted a second", of: "client", check: number, show: (n) => `${n}/s` },
  { key: "connection_creation_rate", label: "Connections", hint: "new ones a second", of: "ip", check: wholeNumber(1, 2 ** 31 - 1, { optional: true }), show: (n) => `${count(n)}/s` },
];

/** @param {Entity} entity */
function entityName(entity) {
  const one = (/** @type {string} */ kind, /** @type {string | null | undefined} */ name) => (name === undefined ? [] : [name === null ? `every other ${kind}` : `${kind} ${name}`]);
  return [...one("user", entity.user), ...one("client id", entity.client_id), ...one("address", entity.ip)].join(", ");
}

/** @type {import("../security.js").Part} */
export function part() {
  const filter = signal("");
  const found = poll(/** @returns {Promise<{quotas: Quota[]}>} */ (signal) => api.get("/quotas", null, { signal }), 10);
  return h(
    "div",
    null,
    h("div", { class: "toolbar" }, filterInput(filter, { placeholder: "Filter by name" }), h("span", { class: "spacer-x" }), actionButton("Add quota…", () => edit(null, found.refresh), { kind: "primary", why: whyNot })),
    kept(found, (value) =>
      table({
        label: "Quotas",
        rows: computed(() => value.value.quotas),
        key: (each) => JSON.stringify(each.entity),
        filter,
        empty: emptyState("No quotas", "Every client may use as much as it gets. A quota limits a user, a client id, both, or an address, at each broker."),
        onOpen: (each) => edit(each, found.refresh),
        columns: [
          { key: "entity", title: "Whose", value: (each) => entityName(each.entity), hint: (each) => entityName(each.entity) },
          ...LIMITS.map((limit) => ({ key: limit.key, title: limit.label, width: 118, align: /** @type {const} */ ("right"), about: `${limit.key}, ${limit.hint}`, value: (/** @type {Quota} */ each) => each.limits[limit.key] ?? null, cell: (/** @type {Quota} */ each) => (limit.key in each.limits ? limit.show(each.limits[limit.key]) : "–") })),
          { key: "actions", title: "Actions", width: 180, align: "right", sort: false, value: () => "", cell: (each) => [actionButton("Edit…", () => edit(each, found.refresh), { kind: "plain small", why: whyNot }), " ", actionButton("Remove…", () => remove(each, found.refresh), { kind: "danger small", why: whyNot })] },
        ],
      }),
    ),
  );
}

/**
 * @param {Quota | null} quota
 * @param {() => void} then
 */
function edit(quota, then) {
  const whose = entry("Whose", {
    name: "whose",
    value: "user",
    options: [
      ["user", "A user"],
      ["client_id", "A client id"],
      ["both", "A user with a client id"],
      ["ip", "An address"],
    ],
  });
  const has = (/** @type {string} */ kind) => computed(() => whose.value.value === kind || (whose.value.value === "both" && kind !== "ip"));
  const names = { user: entry("User", { name: "user", hint: "Empty: every user without a quota of its own." }), client_id: entry("Client id", { name: "client_id", hint: "Empty: every client id without a quota of its own." }), ip: entry("Address", { name: "ip", hint: "Empty: every address without a quota of its own." }) };
  const limits = LIMITS.map((limit) => ({ limit, entry: entry(limit.label, { name: limit.key, type: "number", value: String(quota?.limits[limit.key] ?? ""), hint: `${limit.hint}; empty for no limit`, check: limit.check, props: { min: 0, step: "any" } }) }));
  const isIp = () => (quota ? "ip" in quota.entity : whose.value.value === "ip");
  const wanted = () => limits.filter((each) => (each.limit.of === "ip") === isIp());
  const entity = () => {
    if (quota) return quota.entity;
    /** @type {Record<string, string | null>} */
    const made = {};
    for (const [kind, each] of Object.entries(names)) if (has(kind).peek()) made[kind] = each.value.peek().trim() || null;
    return made;
  };
  const save = () =>
    sent([...Object.values(names), ...wanted().map((each) => each.entry)], async () => {
      /** @type {Record<string, number | null>} */
      const changes = {};
      for (const each of wanted()) {
        const text = each.entry.value.peek().trim();
        if (text) changes[each.limit.key] = Number(text);
        else if (quota && each.limit.key in quota.limits) changes[each.limit.key] = null;
      }
      if (!Object.keys(changes).length) {
        wanted()[0].entry.error.set("Enter at least one limit.");
        wanted()[0].entry.focus();
        return false;
      }
      await api.post("/quotas", { entity: entity(), limits: changes });
      toast(`The quota of ${entityName(entity())} is set.`);
      then();
      return true;
    });
  dialog({
    title: quota ? `Quota of ${entityName(quota.entity)}` : "Add a quota",
    wide: true,
    body: h(
      "div",
      { class: "stack" },
      h("p", { class: "muted" }, "Limits hold at each broker. The most specific quota of a client applies."),
      quota ? null : h("div", { class: "grid-2" }, whose.node, Object.entries(names).map(([kind, each]) => h("div", { hidden: () => !has(kind).value }, each.node))),
      h("div", { class: "grid-2" }, limits.map((each) => h("div", { hidden: () => (each.limit.of === "ip") !== isIp() }, each.entry.node))),
    ),
    actions: [
      { label: "Cancel", kind: "plain" },
      { label: "Save", kind: "primary", run: save },
    ],
  });
}

/**
 * @param {Quota} quota
 * @param {() => void} then
 */
function remove(quota, then) {
  confirm({
    title: `Remove the quota of ${entityName(quota.entity)}?`,
    text: "All of its limits are removed. A less specific quota may then apply.",
    label: "Remove",
    kind: "danger",
    action: async () => {
      await api.post("/quotas", { entity: quota.entity, limits: Object.fromEntries(Object.keys(quota.limits).map((key) => [key, null])) });
      toast("The quota is removed.");
      then();
    },
  });
}
