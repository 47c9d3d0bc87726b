// Users that log in with SCRAM.

import { api, poll, whyNot } from "../../lib/api.js";
import { confirmByName, dialog } from "../../lib/dialog.js";
import { h } from "../../lib/dom.js";
import { entry, required, sent, wholeNumber } from "../../lib/entry.js";
import { filterInput } from "../../lib/form.js";
import { kept } from "../../lib/kept.js";
import { actionButton, badge, emptyState } from "../../lib/layout.js";
import { link, path } from "../../lib/router.js";
import { computed, signal } from "../../lib/signal.js";
import { table } from "../../lib/table.js";
import { toast } from "../../lib/toast.js";

/** @typedef {{user: string, mechanisms: {mechanism: string, iterations: number}[]}} User */

const ITERATIONS_MIN = 4096;
const ITERATIONS_MAX = 16384;

/** @type {import("../security.js").Part} */
export function part() {
  const filter = signal("");
  const found = poll(/** @returns {Promise<{users: User[]}>} */ (signal) => api.get("/users", null, { signal }), 10);
  const adding = () => actionButton("Add user…", () => add(found.refresh), { kind: "primary", why: whyNot });
  return h(
    "div",
    null,
    h("div", { class: "toolbar" }, filterInput(filter, { placeholder: "Filter by name" }), h("span", { class: "spacer-x" }), adding()),
    kept(found, (value) =>
      table({
        label: "Users",
        rows: computed(() => value.value.users),
        key: (each) => each.user,
        filter,
        empty: emptyState("No users", "Users that log in with SCRAM are kept in the cluster. Users of PLAIN are in the settings of the brokers, and those of an identity provider are kept there."),
        columns: [
          { key: "user", title: "User", value: (each) => each.user, hint: (each) => each.user },
          { key: "mechanisms", title: "Logs in with", value: (each) => each.mechanisms.map((one) => one.mechanism).join(" "), cell: (each) => each.mechanisms.map((one) => [badge(one.mechanism, "neutral", `${one.iterations} iterations`), " "]) },
          { key: "links", title: "More", width: 130, sort: false, value: () => "", cell: (each) => [link(`/security/acls?principal=${encodeURIComponent(`User:${each.user}`)}`, null, "ACLs"), " · ", link("/security/quotas", null, "Quotas")] },
          {
            key: "actions",
            title: "Actions",
            width: 230,
            align: "right",
            sort: false,
            value: () => "",
            cell: (each) => [actionButton("Set password…", () => setPassword(each.user, found.refresh), { kind: "plain small", why: whyNot }), " ", actionButton("Remove…", () => remove(each.user, found.refresh), { kind: "danger small", why: whyNot })],
          },
        ],
      }),
    ),
  );
}

function passwords() {
  const password = entry("Password", { name: "password", type: "password", check: required("Enter a password.") });
  const again = entry("The same again", { name: "again", type: "password", check: (text) => (text === password.value.peek() ? "" : "The two passwords differ.") });
  return [password, again];
}

/** @param {() => void} then */
function add(then) {
  const name = entry("Name", { name: "user", check: required("Enter a name.") });
  const [password, again] = passwords();
  const mechanism = entry("Mechanism", { name: "mechanism", value: "SCRAM-SHA-512", options: ["SCRAM-SHA-512", "SCRAM-SHA-256"], hint: "A client has to use the same one." });
  const iterations = entry("Iterations", { name: "iterations", type: "number", value: "8192", hint: "How often the password is hashed: more make it harder to guess, and log-ins slower.", check: wholeNumber(ITERATIONS_MIN, ITERATIONS_MAX) });
  const entries = [name, password, again, mechanism, iterations];
  dialog({
    title: "Add a user",
    body: h("div", { class: "stack" }, entries.map((each) => each.node)),
    actions: [
      { label: "Cancel", kind: "plain" },
      {
        label: "Add",
        kind: "primary",
        run: () =>
          sent(entries, async () => {
            const user = name.value.peek().trim();
            await api.post("/users", { user, password: password.value.peek(), mechanism: mechanism.value.peek(), iterations: Number(iterations.value.peek()) });
            toast(`${user} can log in at every broker.`);
            then();
          }),
      },
    ],
  });
}

/**
 * @param {string} user
 * @param {() => void} then
 */
function setPassword(user, then) {
  const entries = passwords();
  dialog({
    title: `Set the password of ${user}`,
    body: h("div", { class: "stack" }, h("p", { class: "muted" }, "For all mechanisms that the user has. Connections that are open stay open."), entries.map((each) => each.node)),
    actions: [
      { label: "Cancel", kind: "plain" },
      {
        label: "Set password",
        kind: "primary",
        run: () =>
          sent(entries, async () => {
            await api.put(`${path("users", user)}/password`, { password: entries[0].value.peek() });
            toast(`The password of ${user} is set.`);
            then();
          }),
      },
    ],
  });
}

/**
 * @param {string} user
 * @param {() => void} then
 */
function remove(user, then) {
  confirmByName({
    title: `Remove ${user}?`,
    name: user,
    text: "The user can no longer log in. Its ACLs and quotas stay.",
    label: "Remove",
    action: async () => {
      await api.delete(path("users", user));
      toast(`${user} is removed.`);
      then();
    },
  });
}
