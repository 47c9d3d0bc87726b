// Writes records: key, value, headers, partition, tombstone, timestamp, and several at once.

import { api } from "../lib/api.js";
import { dialog } from "../lib/dialog.js";
import { h } from "../lib/dom.js";
import { NotJson, parseExact } from "../lib/exact-json.js";
import { checkbox, field, numberInput, select, textArea, textInput } from "../lib/form.js";
import { count } from "../lib/format.js";
import { fromHex, toBase64 } from "../lib/record-bytes.js";
import { signal } from "../lib/signal.js";
import { toast } from "../lib/toast.js";

const REPEAT_MAX = 1000;
const utf8 = new TextEncoder();

/** What is wrong with a field: it is shown beside it. */
class FieldError extends Error {}

/**
 * @param {string} topic
 * @param {number[]} partitions
 * @param {() => void} onWritten
 */
export function openProduce(topic, partitions, onWritten) {
  const errors = { key: signal(""), value: signal(""), headers: signal(""), repeat: signal(""), timestamp: signal("") };
  const hasKey = signal(true);
  const isTombstone = signal(false);
  const key = textInput({ class: "mono" });
  const keyKind = select([["text", "Text"], ["hex", "Hex"]], { aria: { label: "Form of the key" } });
  const value = textArea({ rows: 8 });
  const valueKind = select([["text", "Text"], ["json", "JSON"], ["hex", "Hex"]], { aria: { label: "Form of the value" } });
  const partition = select([["", "By the key"], ...partitions.map((each) => /** @type {[string, string]} */ ([String(each), `Partition ${each}`]))]);
  const timestamp = textInput({ placeholder: "now" });
  const repeat = numberInput({ value: "1", min: 1, max: REPEAT_MAX });
  const headerRows = h("div", { class: "header-rows" });
  const addHeader = () => {
    const number = headerRows.childElementCount + 1;
    const row = h(
      "div",
      { class: "header-row" },
      textInput({ placeholder: "Name", aria: { label: `Name of header ${number}` } }),
      textInput({ placeholder: "Value", aria: { label: `Value of header ${number}` } }),
      h("button", { type: "button", class: "icon", aria: { label: `Remove header ${number}` }, on: { click: () => row.remove() } }, "×"),
    );
    headerRows.append(row);
    row.querySelector("input")?.focus();
  };

  const body = h(
    "div",
    { class: "stack" },
    h("div", { class: "row" }, checkbox({ checked: hasKey, id: "produce-has-key" }), h("label", { for: "produce-has-key" }, "With a key"), h("span", { class: "spacer-x" }), keyKind),
    h("div", { hidden: () => !hasKey.value }, field("Key", key, { error: errors.key })),
    h("div", { class: "row" }, checkbox({ checked: isTombstone, id: "produce-tombstone" }), h("label", { for: "produce-tombstone" }, "Tombstone: no value"), h("span", { class: "spacer-x" }), valueKind),
    h("div", { hidden: () => isTombstone.value }, field("Value", value, { error: errors.value })),
    h("div", null, h("span", { class: "field-label" }, "Headers"), headerRows, h("button", { type: "button", class: "link small", on: { click: addHeader } }, "Add a header"), h("p", { class: "field-error", role: "alert", hidden: () => !errors.headers.value }, () => errors.headers.value)),
    h(
      "div",
      { class: "search-form" },
      field("Partition", partition),
      field("Timestamp", timestamp, { hint: "Milliseconds since 1970, or ISO 8601", error: errors.timestamp }),
      field("Repeat", repeat, { hint: `How many times, up to ${count(REPEAT_MAX)}`, error: errors.repeat }),
    ),
  );

  /** @template T @param {keyof typeof errors} name @param {() => T | Promise<T>} make @returns {Promise<T | undefined>} */
  const checked = async (name, make) => {
    errors[name].set("");
    try {
      return await make();
    } catch (error) {
      if (!(error instanceof FieldError || error instanceof NotJson)) throw error;
      errors[name].set(error.message);
      return undefined;
    }
  };

  async function send() {
    const made = {
      topic,
      key: await checked("key", () => (hasKey.peek() ? encoded(key.value, keyKind.value) : null)),
      value: await checked("value", () => (isTombstone.peek() ? null : encoded(value.value, valueKind.value))),
      headers: await checked("headers", () => headersOf(headerRows)),
      partition: partition.value === "" ? null : Number(partition.value),
      timestamp: await checked("timestamp", () => timestampOf(timestamp.value)),
    };
    const times = await checked("repeat", () => timesOf(repeat.value));
    if (times === undefined || Object.values(made).some((each) => each === undefined)) return false;
    const results = await api.post("/produce", Array.from({ length: times }, () => made));
    const refused = results.filter((/** @type {any} */ each) => each.error);
    onWritten();
    if (refused.length) throw new Error(`${count(results.length - refused.length)} of ${count(times)} records were written. ${refused[0].error.message}.`);
    const last = results[results.length - 1];
    toast(times === 1 ? `Written to partition ${last.partition}, offset ${count(last.offset)}` : `${count(times)} records written`);
    return true;
  }

  dialog({ title: `Produce to ${topic}`, wide: true, body, actions: [{ label: "Cancel", kind: "plain" }, { label: "Produce", kind: "primary", run: send }] });
}

/**
 * Base64 of what was typed.
 * @param {string} text
 * @param {string} kind
 */
async function encoded(text, kind) {
  if (kind === "hex") {
    const bytes = fromHex(text);
    if (bytes === null) throw new FieldError("Expected pairs of hexadecimal digits, such as 00 ff.");
    return toBase64(bytes);
  }
  if (kind === "json") await parseExact(text);
  return toBase64(utf8.encode(text));
}

/** @param {HTMLElement} rows */
function headersOf(rows) {
  return [...rows.children].map((row) => {
    const [name, content] = [...row.querySelectorAll("input")].map((each) => each.value);
    if (!name) throw new FieldError("A header has no name.");
    return { key: name, value: toBase64(utf8.encode(content)) };
  });
}

/** @param {string} text */
function timesOf(text) {
  if (!/^\d{1,4}$/.test(text) || Number(text) < 1 || Number(text) > REPEAT_MAX) throw new FieldError(`Expected a number from 1 to ${count(REPEAT_MAX)}.`);
  return Number(text);
}

/** @param {string} text */
function timestampOf(text) {
  const found = text.trim();
  if (!found || found === "now") return null;
  const ms = /^\d{1,15}$/.test(found) ? Number(found) : Date.parse(found);
  if (!Number.isSafeInteger(ms) || ms < 0) throw new FieldError("Expected milliseconds since 1970, or a time such as 2026-01-31T12:00:00Z.");
  return ms;
}
