// The dialog that creates a topic. What is wrong is said beside its field, and nothing typed is lost.

import { api, ApiError } from "../../lib/api.js";
import { dialog } from "../../lib/dialog.js";
import { h } from "../../lib/dom.js";
import { field, numberInput, select, textArea, textInput } from "../../lib/form.js";
import { navigate, path } from "../../lib/router.js";
import { computed, effect, signal } from "../../lib/signal.js";
import { toast } from "../../lib/toast.js";
import { words } from "./words.js";

const NAME = /^[a-zA-Z0-9._-]+$/;
const NAME_MAX = 249;
const PARTITIONS_MAX = 10_000;
const REPLICAS_MAX = 32_767;

/** @type {[string, string][]} */
const TIMES = [["60000", "minutes"], ["3600000", "hours"], ["86400000", "days"], ["1", "milliseconds"]];
/** @type {[string, string][]} */
const SIZES = [["1048576", "MB"], ["1073741824", "GB"], ["1024", "KB"], ["1", "bytes"]];

/** Codes of errors, and the field that they are about. @type {Record<string, string>} */
const FIELD_OF_CODE = {
  topic_already_exists: "name",
  invalid_topic_exception: "name",
  invalid_partitions: "partitions",
  invalid_replication_factor: "replicas",
  not_enough_replicas: "min.insync.replicas",
};

/** A number with a unit. @param {[string, string][]} units @param {string} label */
function amount(units, label) {
  const typed = signal("");
  const unit = signal(units === TIMES ? "86400000" : units[0][0]);
  const value = computed(() => (typed.value.trim() === "" ? null : times(typed.value.trim(), unit.value)));
  const input = numberInput({ value: typed, min: 0, step: "any", placeholder: "default" });
  const box = h("div", { class: "amount" }, input, select(units, { value: unit, aria: { label: `Unit of ${label}` } }));
  return { value, input, box };
}

/** @param {string} text @param {string} unit */
function times(text, unit) {
  const n = Number(text);
  return Number.isFinite(n) && text !== "" ? String(Math.round(n * Number(unit))) : text;
}

/** @param {() => void} done Called when the topic exists. */
export function createTopic(done) {
  const name = signal("");
  const partitions = signal("");
  const replicas = signal("");
  const policy = signal("");
  const inSync = signal("");
  const more = signal("");
  const keptFor = amount(TIMES, "retention");
  const size = amount(SIZES, "size");
  /** @type {Record<string, import("../../lib/signal.js").Signal<string>>} */
  const errors = {};
  for (const each of ["name", "partitions", "replicas", "retention.ms", "retention.bytes", "cleanup.policy", "min.insync.replicas", "more"]) errors[each] = signal("");

  const body = h(
    "div",
    { class: "stack" },
    field("Name", textInput({ value: name, maxLength: NAME_MAX + 1, required: true }), { hint: "Letters, digits, dots, dashes and underscores.", error: errors.name }),
    h(
      "div",
      { class: "pair" },
      field("Partitions", numberInput({ value: partitions, min: 1, max: PARTITIONS_MAX, placeholder: "default" }), { error: errors.partitions }),
      field("Replicas", numberInput({ value: replicas, min: 1, max: REPLICAS_MAX, placeholder: "default" }), { error: errors.replicas }),
    ),
    h(
      "div",
      { class: "pair" },
      described("Keep records for", keptFor, "retention.ms", errors["retention.ms"]),
      described("Size of a partition", size, "retention.bytes", errors["retention.bytes"]),
    ),
    h(
      "div",
      { class: "pair" },
      field("Clean-up", select([["", "default"], ["delete", "delete old segments"], ["compact", "compact: latest of each key"], ["compact,delete", "compact and delete"]], { value: policy }), { error: errors["cleanup.policy"] }),
      field("Replicas in sync", numberInput({ value: inSync, min: 1, placeholder: "default" }), { hint: "That a write with acks=all needs.", error: errors["min.insync.replicas"] }),
    ),
    opened(errors.more, h("summary", null, "More settings"), field("One a line, as name=value", textArea({ value: more, rows: 3, placeholder: "segment.bytes=104857600" }), { error: errors.more })),
  );

  function check() {
    for (const each of Object.values(errors)) each.set("");
    const wanted = name.peek().trim();
    if (!wanted) errors.name.set("A topic needs a name.");
    else if (wanted.length > NAME_MAX) errors.name.set(`The name has ${wanted.length} characters; at most ${NAME_MAX} are allowed.`);
    else if (!NAME.test(wanted) || wanted === "." || wanted === "..") errors.name.set("Only letters, digits, dots, dashes and underscores are allowed.");
    whole(partitions.peek(), PARTITIONS_MAX, errors.partitions);
    whole(replicas.peek(), REPLICAS_MAX, errors.replicas);
    return Object.values(errors).every((each) => !each.peek());
  }

  function configs() {
    /** @type {Record<string, string>} */
    const found = {};
    for (const line of more.peek().split("\n")) {
      if (!line.trim()) continue;
      const at = line.indexOf("=");
      if (at < 1) {
        errors.more.set(`Expected name=value, found "${line.trim().slice(0, 60)}".`);
        return null;
      }
      found[line.slice(0, at).trim()] = line.slice(at + 1).trim();
    }
    if (keptFor.value.peek() !== null) found["retention.ms"] = String(keptFor.value.peek());
    if (size.value.peek() !== null) found["retention.bytes"] = String(size.value.peek());
    if (policy.peek()) found["cleanup.policy"] = policy.peek();
    if (inSync.peek()) found["min.insync.replicas"] = inSync.peek();
    return found;
  }

  async function create() {
    const settings = check() ? configs() : null;
    if (!settings) return false;
    const topic = name.peek().trim();
    try {
      await api.post("/topics", {
        name: topic,
        ...(partitions.peek() ? { partitions: Number(partitions.peek()) } : {}),
        ...(replicas.peek() ? { replication_factor: Number(replicas.peek()) } : {}),
        configs: settings,
      });
    } catch (error) {
      if (!(error instanceof ApiError) || !place(error, errors)) throw error;
      return false;
    }
    toast(`Topic ${topic} is created.`);
    done();
    navigate(path("topics", topic));
    return true;
  }

  dialog({
    title: "Create topic",
    body,
    actions: [
      { label: "Cancel", kind: "plain" },
      { label: "Create", kind: "primary", run: create },
    ],
  });
}

/**
 * Details that open when there is an error inside.
 * @param {import("../../lib/signal.js").Signal<string>} error
 * @param {...Node} children
 */
function opened(error, ...children) {
  const made = h("details", null, children);
  effect(() => {
    if (error.value) made.open = true;
  });
  return made;
}

/**
 * @param {string} label
 * @param {ReturnType<typeof amount>} made
 * @param {string} setting
 * @param {import("../../lib/signal.js").Signal<string>} error
 */
function described(label, made, setting, error) {
  const hint = h("span", null, () => (made.value.value === null ? "As the broker has it." : `${setting} = ${made.value.value}${words(setting, made.value.value) ? `, ${words(setting, made.value.value)}` : ""}`));
  const shown = field(label, made.input, { hint, error });
  made.input.replaceWith(made.box);
  made.box.prepend(made.input);
  return shown;
}

/**
 * @param {string} text
 * @param {number} most
 * @param {import("../../lib/signal.js").Signal<string>} error
 */
function whole(text, most, error) {
  if (text.trim() && !(/^\d+$/.test(text.trim()) && Number(text) >= 1 && Number(text) <= most)) error.set(`Expected a number from 1 to ${most}.`);
}

/**
 * Put what the API says beside the fields. False if there is no field for it.
 * @param {ApiError} error
 * @param {Record<string, import("../../lib/signal.js").Signal<string>>} errors
 */
function place(error, errors) {
  const settings = Object.entries(/** @type {Record<string, string>} */ (error.more.settings ?? {}));
  for (const [name, message] of settings) {
    const at = errors[name] ?? errors.more;
    at.set([at.peek(), message].filter(Boolean).join(" "));
  }
  const at = FIELD_OF_CODE[error.code];
  if (at) errors[at].set(error.message);
  return settings.length > 0 || !!at;
}
