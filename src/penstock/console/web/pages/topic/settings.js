// The settings of a topic: what is set, where, what it means. Changes are gathered, checked by the node as they are typed, and
// saved together after a look at the difference.

import { api, ApiError, poll, whyNot } from "../../lib/api.js";
import { dialog } from "../../lib/dialog.js";
import { h } from "../../lib/dom.js";
import { filterInput, select, textInput } from "../../lib/form.js";
import { actionButton, badge, emptyState, loading } from "../../lib/layout.js";
import { path } from "../../lib/router.js";
import { computed, effect, signal } from "../../lib/signal.js";
import { toast } from "../../lib/toast.js";
import { GROUP_NAMES, groupOf, withWords, words } from "./words.js";

/** @typedef {import("./shapes.js").Config} Config */
/** @typedef {Map<string, string | null>} Changes New values by name; null resets one. */

const CHECK_MS = 300; // after the last key
const CHANGED = "Set on this topic";

/** @type {Record<string, [string, import("../../lib/layout.js").Tone]>} */
const SOURCES = {
  topic: ["this topic", "info"],
  broker: ["this broker, at run time", "neutral"],
  all_brokers: ["all brokers, at run time", "neutral"],
  file: ["the broker's file", "neutral"],
  default: ["default", "neutral"],
};

/**
 * @param {string} topic
 * @param {() => void} saved
 */
export function settingsTab(topic, saved) {
  const url = `${path("topics", topic)}/configs`;
  const polled = poll((stop) => api.get(url, null, { signal: stop }), 10);
  const filter = signal("");
  const changes = signal(/** @type {Changes} */ (new Map()));
  const errors = signal(/** @type {Record<string, string>} */ ({}));
  const wrong = signal(""); // with the settings together
  /** @type {Map<string, Config>} */
  let known = new Map();

  const configs = computed(() => /** @type {Config[]} */ (polled.value.value?.configs ?? []));
  effect(() => {
    known = new Map(configs.value.map((each) => [each.name, each]));
  });
  const isReady = computed(() => polled.value.value !== undefined);
  // Rows are made anew only if names, values or the filter change, so that no poll disturbs what is being typed.
  const shape = computed(() => JSON.stringify([configs.value.map((each) => [each.name, each.value, each.source]), filter.value]));

  const check = checker(url, changes, errors, wrong);
  /** @type {(name: string, value: string | null | undefined) => void} */
  const change = (name, value) => {
    const next = new Map(changes.peek());
    if (value === undefined) next.delete(name);
    else next.set(name, value);
    changes.set(next);
    check();
  };
  const discard = () => {
    changes.set(new Map());
    errors.set({});
    wrong.set("");
    reset.update((n) => n + 1);
  };
  const reset = signal(0);
  const review = () => {
    const before = known;
    confirmChanges(topic, url, before, changes.peek(), () => {
      discard();
      polled.refresh();
      saved();
    });
  };

  return h(
    "div",
    null,
    h("div", { class: "toolbar" }, filterInput(filter, { placeholder: "Filter settings", aria: { label: "Filter settings", keyshortcuts: "/" } })),
    () => (isReady.value && !polled.value.error ? null : loading(polled, () => null, { lines: 10 })),
    () => {
      shape.value;
      reset.value;
      return isReady.value ? groups(known, filter.value, changes, errors, change) : null;
    },
    () => bar(changes.value, errors.value, wrong.value, review, discard),
  );
}

/**
 * Asks the node what is wrong with the changes, a moment after the last one.
 * @param {string} url
 * @param {import("../../lib/signal.js").Signal<Changes>} changes
 * @param {import("../../lib/signal.js").Signal<Record<string, string>>} errors
 * @param {import("../../lib/signal.js").Signal<string>} wrong
 */
function checker(url, changes, errors, wrong) {
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let timer;
  let turn = 0;
  const ask = async () => {
    const now = ++turn;
    const wanted = changes.peek();
    /** @type {Record<string, string>} */
    let found = {};
    let together = "";
    try {
      if (wanted.size) await api.patch(url, { configs: Object.fromEntries(wanted) }, { dry_run: true });
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      found = error.more.settings ?? {};
      if (!error.more.settings && error.status !== 0) together = error.message;
    }
    if (now !== turn) return;
    errors.set(found);
    wrong.set(together);
  };
  return () => {
    clearTimeout(timer);
    timer = setTimeout(ask, CHECK_MS);
  };
}

/**
 * @param {Map<string, Config>} known
 * @param {string} filter
 * @param {import("../../lib/signal.js").Signal<Changes>} changes
 * @param {import("../../lib/signal.js").Signal<Record<string, string>>} errors
 * @param {(name: string, value: string | null | undefined) => void} change
 */
function groups(known, filter, changes, errors, change) {
  const wanted = filter.trim().toLowerCase();
  const shown = [...known.values()].filter((each) => !wanted || `${each.name} ${each.documentation} ${each.value}`.toLowerCase().includes(wanted));
  if (!shown.length) return emptyState("No setting found", "No name and no description has this text.");
  const all = [CHANGED, ...GROUP_NAMES];
  return all.map((group) => {
    const inside = shown.filter((each) => (each.source === "topic" ? CHANGED : groupOf(each.name)) === group);
    if (!inside.length) return null;
    return h("section", { class: "card settings" }, h("h2", null, group), inside.map((each) => row(each, changes, errors, change)));
  });
}

/**
 * @param {Config} config
 * @param {import("../../lib/signal.js").Signal<Changes>} changes
 * @param {import("../../lib/signal.js").Signal<Record<string, string>>} errors
 * @param {(name: string, value: string | null | undefined) => void} change
 */
function row(config, changes, errors, change) {
  const { name } = config;
  const isOpen = signal(changes.peek().has(name));
  const pending = computed(() => changes.value.get(name));
  const error = computed(() => (changes.value.has(name) ? (errors.value[name] ?? "") : ""));
  const [source, tone] = SOURCES[config.source] ?? [config.source, "neutral"];
  const close = () => {
    change(name, undefined);
    isOpen.set(false);
  };
  return h(
    "div",
    { class: "setting", data: { name, changed: () => (pending.value === undefined ? null : "true") } },
    h("div", { class: "setting-what" }, h("code", { class: "wrap" }, name), h("p", { class: "muted small" }, config.documentation, config.has_effect ? "" : " Stored and shown only: the node does not act on it.")),
    h(
      "div",
      { class: "setting-value" },
      h("div", { class: "wrap" }, h("span", { class: "mono" }, shownValue(config.value)), words(name, config.value) ? h("span", { class: "muted" }, ` ${words(name, config.value)}`) : null),
      h("div", { class: "row small" }, badge(source, tone, synonyms(config)), config.source === "topic" ? h("span", { class: "muted" }, `default: ${withWords(name, config.default)}`) : null),
      () => (isOpen.value ? editor(config, changes, error, change, close) : null),
      () => (pending.value === null ? h("p", { class: "small" }, `Will be reset to ${withWords(name, config.default)}.`) : null),
    ),
    h("div", { class: "setting-actions" }, () =>
      isOpen.value || pending.value === null
        ? h("button", { type: "button", class: "plain small", on: { click: close } }, "Undo")
        : [
            actionButton("Edit", () => isOpen.set(true), { kind: "plain small", why: () => whyNot("alter configs"), title: `Edit ${name}` }),
            config.source === "topic" ? actionButton("Reset", () => change(name, null), { kind: "plain small", why: () => whyNot("alter configs"), title: `Reset ${name} to its default` }) : null,
          ],
    ),
  );
}

/** @param {string | null} value */
const shownValue = (value) => (value === null ? "not set" : value === "" ? "(empty)" : value);

/** @param {Config} config */
function synonyms({ synonyms: all }) {
  return all.map((each) => `${each.name} = ${each.value ?? "(hidden)"}, ${SOURCES[each.source]?.[0] ?? each.source}`).join("\n");
}

/**
 * @param {Config} config
 * @param {import("../../lib/signal.js").Signal<Changes>} changes
 * @param {import("../../lib/signal.js").Computed<string>} error
 * @param {(name: string, value: string | null | undefined) => void} change
 * @param {() => void} close
 */
function editor(config, changes, error, change, close) {
  const { name } = config;
  const value = signal(changes.peek().get(name) ?? config.value ?? "");
  const set = (/** @type {string} */ text) => {
    value.set(text);
    change(name, text === (config.value ?? "") ? undefined : text);
  };
  const options = choices(config);
  const props = { value, aria: { label: `New value of ${name}`, invalid: () => (error.value ? "true" : null) }, onInput: set, on: { keydown: (/** @type {KeyboardEvent} */ event) => event.key === "Escape" && close() } };
  const input = options ? select(options.includes(value.peek()) ? options : [value.peek(), ...options], props) : textInput({ ...props, class: "mono" });
  queueMicrotask(() => input.focus());
  const meaning = computed(() => words(name, value.value));
  return h(
    "div",
    { class: "setting-editor" },
    input,
    h("p", { class: "small", hidden: () => !meaning.value || !!error.value }, () => `= ${meaning.value}`),
    h("p", { class: "field-error", role: "alert", hidden: () => !error.value }, () => error.value),
    limits(config),
  );
}

/** @param {Config} config @returns {string[] | null} */
function choices({ type, choices: allowed, name }) {
  if (type === "boolean") return ["true", "false"];
  if (name === "cleanup.policy") return ["delete", "compact", "compact,delete", ""];
  return allowed.length && type !== "list" ? allowed : null;
}

/** @param {Config} config */
function limits({ type, min, max, choices: allowed, name }) {
  if (allowed.length || !["int", "short", "long", "double"].includes(type) || min === null) return null;
  const most = max !== null && max < 2 ** 62 ? `${withWords(name, String(min))} to ${withWords(name, String(max))}` : `${min} or more`;
  return h("p", { class: "muted small" }, `Allowed: ${most}.`);
}

/**
 * @param {Changes} changes
 * @param {Record<string, string>} errors
 * @param {string} wrong
 * @param {() => void} review
 * @param {() => void} discard
 */
function bar(changes, errors, wrong, review, discard) {
  if (!changes.size) return null;
  const bad = Object.keys(errors).length > 0 || !!wrong;
  return h(
    "div",
    { class: "save-bar", role: "region", aria: { label: "Changes" } },
    h("span", null, h("strong", null, `${changes.size} ${changes.size === 1 ? "change" : "changes"}`), wrong ? h("span", { class: "field-error" }, ` ${wrong}`) : " not saved"),
    h("span", { class: "row" }, h("button", { type: "button", class: "plain", on: { click: discard } }, "Discard"), h("button", { type: "button", class: "primary", disabled: bad, on: { click: review } }, "Review and save")),
  );
}

/**
 * The difference, and a button that makes it so.
 * @param {string} topic
 * @param {string} url
 * @param {Map<string, Config>} before
 * @param {Changes} changes
 * @param {() => void} saved
 */
function confirmChanges(topic, url, before, changes, saved) {
  const rows = [...changes].map(([name, value]) => {
    const config = before.get(name);
    const after = value === null ? (config?.default ?? null) : value;
    return h(
      "tr",
      null,
      h("th", { scope: "row" }, h("code", { class: "wrap" }, name)),
      h("td", { class: "removed wrap" }, withWords(name, config?.value ?? null)),
      h("td", { class: "added wrap" }, withWords(name, after), value === null ? " (default)" : ""),
    );
  });
  dialog({
    title: `Change settings of ${topic}`,
    wide: true,
    body: h("table", { class: "difference" }, h("thead", null, h("tr", null, h("th", { scope: "col" }, "Setting"), h("th", { scope: "col" }, "Now"), h("th", { scope: "col" }, "After saving"))), h("tbody", null, rows)),
    actions: [
      { label: "Cancel", kind: "plain" },
      {
        label: "Save",
        kind: "primary",
        run: async () => {
          await api.patch(url, { configs: Object.fromEntries(changes) });
          toast("The settings are saved.");
          saved();
        },
      },
    ],
  });
}
