// Settings of brokers: of one, or those that all have in common. A change is checked and shown before it is made.

import { api, ApiError, poll, whyNot } from "../../lib/api.js";
import { confirm, dialog } from "../../lib/dialog.js";
import { h } from "../../lib/dom.js";
import { entry } from "../../lib/entry.js";
import { checkbox, field, filterInput, select } from "../../lib/form.js";
import { kept } from "../../lib/kept.js";
import { actionButton, badge, keyValue } from "../../lib/layout.js";
import { setQuery } from "../../lib/router.js";
import { computed, signal } from "../../lib/signal.js";
import { table } from "../../lib/table.js";
import { toast } from "../../lib/toast.js";
import { getBrokers } from "./brokers.js";

/** @typedef {{name: string, value: string | null, source: string, is_default: boolean, read_only: boolean, type: string, documentation: string, default: string | null, choices: string[], has_effect: boolean}} Config */

const ALL = "all";
/** @type {Record<string, string>} */
const SOURCES = { broker: "this broker", all_brokers: "all brokers", file: "its file", default: "default" };
/** @type {Record<string, import("../../lib/layout.js").Tone>} */
const TONES = { broker: "info", all_brokers: "info", file: "neutral", default: "neutral" };

/** @param {import("../../lib/router.js").Context} ctx */
export function part({ query }) {
  const filter = signal(query.peek().name ?? "");
  const isChanged = signal(false);
  const which = computed(() => query.value.broker || ALL);
  const brokers = poll(getBrokers, 30);
  const base = () => (which.value === ALL ? "/cluster/configs" : `/brokers/${encodeURIComponent(which.value)}/configs`);
  const found = poll(/** @returns {Promise<{configs: Config[]}>} */ (signal) => api.get(base(), null, { signal }), 30);
  return h(
    "div",
    null,
    h(
      "div",
      { class: "toolbar" },
      () => {
        /** @type {[string, string][]} */
        const options = [[ALL, "All brokers"], ...(brokers.value.value?.brokers ?? []).map((each) => /** @type {[string, string]} */ ([String(each.id), `Broker ${each.id}`]))];
        if (!options.some(([id]) => id === which.value)) options.push([which.value, `Broker ${which.value}`]);
        return select(options, { value: which.value, aria: { label: "Broker" }, onInput: (/** @type {string} */ id) => setQuery({ broker: id === ALL ? null : id }) });
      },
      filterInput(filter, { placeholder: "Filter by name or value" }),
      field("Only what is set", checkbox({ checked: isChanged })),
    ),
    h("p", { class: "muted toolbar" }, () => (which.value === ALL ? `Values of the broker that serves this page. A change holds for all brokers, unless one has its own.` : "A change holds for this broker only, and comes before what is set for all.")),
    kept(found, (value) =>
      table({
        label: "Settings",
        rows: computed(() => value.value.configs.filter((each) => !isChanged.value || !each.is_default)),
        key: (each) => each.name,
        filter,
        sort: { key: "name" },
        empty: "No setting fits the filter.",
        onOpen: (each) => edit(each, base(), which.peek(), found.refresh),
        columns: [
          { key: "name", title: "Setting", value: (each) => each.name, cell: (each) => h("span", { class: "mono" }, each.name), hint: (each) => each.documentation },
          { key: "value", title: "Value", value: (each) => each.value, cell: (each) => (each.value === null ? h("span", { class: "muted" }, each.type === "password" ? "hidden" : "not set") : h("span", { class: "mono" }, each.value)), hint: (each) => each.value ?? "" },
          { key: "source", title: "Set by", width: 130, value: (each) => each.source, cell: (each) => badge(SOURCES[each.source] ?? each.source, TONES[each.source] ?? "neutral") },
          { key: "type", title: "Type", width: 90, value: (each) => each.type },
          { key: "edit", title: "Actions", width: 90, align: "right", sort: false, value: () => "", cell: (each) => (each.read_only ? h("span", { class: "muted small", title: "A change needs a restart of the node, with another value in its file." }, "at restart") : actionButton("Edit…", () => edit(each, base(), which.peek(), found.refresh), { kind: "plain small", why: whyNot })) },
        ],
      }),
    ),
  );
}

/**
 * @param {Config} config
 * @param {string} url
 * @param {string} which
 * @param {() => void} then
 */
function edit(config, url, which, then) {
  const about = [
    h("p", null, config.documentation),
    keyValue([
      ["Now", h("code", null, config.value ?? "–")],
      ["Default", h("code", null, config.default ?? "–")],
      ["Set by", SOURCES[config.source] ?? config.source],
      !config.has_effect && ["Note", "It is stored and shown for Kafka's tools. The node does not act on it."],
    ]),
  ];
  if (config.read_only) {
    dialog({ title: config.name, body: h("div", { class: "stack" }, about, h("p", { class: "muted" }, "A change needs a restart of the node, with another value in its file.")) });
    return;
  }
  const value = entry("New value", { name: "value", value: config.value ?? "", options: config.choices.length && config.type !== "list" ? config.choices : config.type === "boolean" ? ["true", "false"] : undefined, props: { class: "mono" } });
  const own = which === ALL ? "all_brokers" : "broker";
  const change = async (/** @type {string | null} */ wanted) => {
    const body = { configs: { [config.name]: wanted } };
    try {
      await api.patch(url, body, { dry_run: true });
    } catch (error) {
      if (!(error instanceof ApiError) || ![400, 409].includes(error.status)) throw error;
      value.error.set(error.more.settings?.[config.name] ?? error.message);
      value.focus();
      return false;
    }
    confirm({
      title: `Change ${config.name}?`,
      text: h(
        "div",
        { class: "stack" },
        keyValue([
          ["Where", which === ALL ? "all brokers" : `broker ${which}`],
          ["Old value", h("code", null, config.value ?? "–")],
          ["New value", wanted === null ? "as set elsewhere, or the default" : h("code", null, wanted)],
        ]),
      ),
      label: "Change",
      action: async () => {
        await api.patch(url, body);
        toast(`${config.name} is changed.`);
        then();
      },
    });
    return true;
  };
  dialog({
    title: config.name,
    body: h("div", { class: "stack" }, about, value.node),
    actions: [
      { label: "Cancel", kind: "plain" },
      ...(config.source === own ? [{ label: "Remove", kind: /** @type {const} */ ("plain"), run: () => change(null) }] : []),
      { label: "Review…", kind: "primary", run: () => change(value.value.peek()), disabled: () => !!whyNot() || value.value.value === (config.value ?? "") },
    ],
  });
}
