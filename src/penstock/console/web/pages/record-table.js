// A table of records: partition, offset, time, key and the beginning of the value.

import { h } from "../lib/dom.js";
import { bytes as size, count, time, utc } from "../lib/format.js";
import { fromBase64, preview } from "../lib/record-bytes.js";
import { table } from "../lib/table.js";

export const FIELD_BYTES = 600; // of a key or value that a list asks for
const PREVIEW_CHARS = 300;
const KEY_CHARS = 80;

/**
 * @typedef {object} Row
 * @property {string} id partition:offset
 * @property {number} partition
 * @property {number} offset
 * @property {number} timestamp
 * @property {string | null} key
 * @property {string | null} value
 * @property {number | null} size bytes of the value
 */

/**
 * @param {any} record As the API has it, with `decode=base64`.
 * @returns {Row}
 */
export function recordRow(record) {
  const key = record.key === null ? null : fromBase64(record.key);
  const value = record.value === null ? null : fromBase64(record.value);
  return {
    id: `${record.partition}:${record.offset}`,
    partition: record.partition,
    offset: record.offset,
    timestamp: record.timestamp,
    key: key && preview(key, KEY_CHARS),
    value: value && preview(value, PREVIEW_CHARS),
    size: value && (record.cut?.value ?? value.length),
  };
}

/**
 * @param {object} options
 * @param {import("../lib/signal.js").Signal<Row[]>} options.rows
 * @param {(row: Row) => void} options.onOpen
 * @param {() => string | null} options.shown The id of the record that is open.
 * @param {Node | string} options.empty
 * @param {import("../lib/signal.js").Signal<Set<string>>} [options.selectable]
 * @param {string} [options.label]
 * @returns {HTMLElement}
 */
export function recordTable({ rows, onOpen, shown, empty, selectable, label = "Records" }) {
  return table({
    label,
    rows,
    key: (row) => row.id,
    onOpen,
    selectable,
    empty,
    rowClass: (row) => (shown() === row.id ? "is-shown" : null),
    height: "calc(100dvh - 260px)",
    columns: [
      { key: "partition", title: "Part.", about: "Partition", value: (row) => row.partition, align: "right", width: 64, sort: false, mono: true },
      { key: "offset", title: "Offset", value: (row) => row.offset, cell: (row) => count(row.offset), align: "right", width: 110, sort: false, mono: true },
      { key: "time", title: "Time", value: (row) => row.timestamp, cell: (row) => h("time", { title: utc(row.timestamp) }, time(row.timestamp)), width: 204, sort: false, mono: true },
      { key: "key", title: "Key", value: (row) => row.key ?? "", cell: (row) => content(row.key, "no key"), hint: () => "", width: 150, sort: false, mono: true },
      { key: "value", title: "Value", value: (row) => row.value ?? "", cell: (row) => content(row.value, "tombstone"), hint: () => "", sort: false, mono: true },
      { key: "size", title: "Size", value: (row) => row.size, cell: (row) => (row.size === null ? "" : size(row.size)), align: "right", width: 80, sort: false },
    ],
  });
}

/** @param {string | null} text @param {string} none */
function content(text, none) {
  if (text === null) return h("span", { class: "record-none" }, none);
  return text === "" ? h("span", { class: "record-none" }, "empty") : h("bdi", { class: "record-text" }, text);
}

/** @param {string} id partition:offset */
export function placeOf(id) {
  const found = /^(\d{1,10}):(\d{1,18})$/.exec(id);
  return found ? { partition: Number(found[1]), offset: Number(found[2]) } : null;
}
