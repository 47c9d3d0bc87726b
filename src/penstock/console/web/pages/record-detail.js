// One record: key, value and headers as text, JSON tree or hex, and what its batch says. The chosen decoders are
// remembered for each topic.

import { ApiError, api, url } from "../lib/api.js";
import { h } from "../lib/dom.js";
import { prettyJson } from "../lib/exact-json.js";
import { bytes as size, count, time, utc } from "../lib/format.js";
import { hexView } from "../lib/hex.js";
import { jsonTree } from "../lib/json-tree.js";
import { badge, copy, keyValue, problem, skeleton } from "../lib/layout.js";
import { path } from "../lib/router.js";
import { batch, effect, onDispose, signal } from "../lib/signal.js";
import { container, decoders, detect, fromBase64, visible } from "../lib/record-bytes.js";

const LOADED_BY_ITSELF = 1 << 20; // bytes of a value; more is loaded when it is asked for
const LOADED_MAX = 64 << 20;
const TEXT_CHARS = 50_000; // of a text that are shown at a time
const HEADERS = 100; // that are shown at a time
const PRETTY_CHARS = 200_000; // a longer JSON text is shown as it is, not indented
const COPIED_CHARS_MAX = 8 << 20;

/** @typedef {{topic: string, partition: number, offset: number}} Place */

/**
 * Where a record is in the API.
 * @param {Place} place
 */
export function recordPath({ topic, partition, offset }) {
  return path("topics", topic, "partitions", partition, "records", offset);
}

/**
 * A panel for one record.
 * @param {Place} place
 * @param {() => void} onClose
 * @returns {HTMLElement}
 */
export function recordDetail(place, onClose) {
  const found = signal(/** @type {{record?: any, error?: unknown}} */ ({}));
  const control = new AbortController();
  onDispose(() => control.abort());
  api
    .get(recordPath(place), { max_field_bytes: LOADED_BY_ITSELF }, { signal: control.signal })
    .then((record) => found.set({ record }))
    .catch((error) => control.signal.aborted || found.set({ error }));
  const title = h("h2", { tabIndex: -1 }, `Partition ${place.partition}, offset ${count(place.offset)}`);
  const link = `${window.location.origin}/console${path("topics", place.topic, "messages")}?partition=${place.partition}&offset=${place.offset}&record=${place.partition}:${place.offset}`;
  return h(
    "section",
    { class: "detail", aria: { label: "Record" } },
    h(
      "header",
      null,
      title,
      h(
        "div",
        { class: "row" },
        h("button", { type: "button", class: "plain small", on: { click: () => copy(link) } }, "Copy link"),
        h("button", { type: "button", class: "icon", aria: { label: "Close record" }, on: { click: onClose } }, "×"),
      ),
    ),
    () => {
      const { record, error } = found.value;
      if (error) return problem(error);
      return record ? content(place, record) : skeleton(4);
    },
  );
}

/**
 * @param {Place} place
 * @param {any} record
 */
function content(place, record) {
  const { batch: written, sizes } = record;
  const timeKind = record.timestamp_type === "LogAppendTime" ? "set by the broker" : "set by the producer";
  return [
    h("p", { class: "muted small" }, h("time", { title: utc(record.timestamp) }, time(record.timestamp)), ` · ${timeKind} · ${size((sizes.key ?? 0) + (sizes.value ?? 0) + sizes.headers)}`),
    field(place, "key", record.key, record.cut.key, sizes.key),
    field(place, "value", record.value, record.cut.value, sizes.value),
    headers(record),
    h(
      "details",
      { class: "part" },
      h("summary", null, "Batch"),
      keyValue([
        ["Offsets", `${count(written.base_offset)} to ${count(written.last_offset)}`],
        ["Records", count(written.records)],
        ["Size", `${size(written.size)}${written.compression === "none" ? "" : `, ${written.compression}`}`],
        ["Compression", written.compression],
        written.producer_id !== null && ["Producer", `id ${written.producer_id}, epoch ${written.producer_epoch}, sequence ${written.sequence}`],
        ["Transaction", written.is_transactional ? "committed" : "none"],
        ["Leader epoch", String(written.leader_epoch)],
      ]),
    ),
  ];
}

/**
 * The key or the value.
 * @param {Place} place
 * @param {"key" | "value"} name
 * @param {string | null} base64 its beginning
 * @param {number | undefined} whole its length, if there is more of it
 * @param {number | null} length
 */
function field(place, name, base64, whole, length) {
  const label = name === "key" ? "Key" : "Value";
  if (base64 === null) {
    return h("section", { class: "part" }, h("header", null, h("h3", null, label)), name === "key" ? h("p", { class: "record-none" }, "no key") : badge("tombstone", "warn", "The value is null: in a compacted topic it deletes the key"));
  }
  const data = signal(fromBase64(base64));
  const isCut = signal(whole !== undefined);
  const chosen = signal(remembered(place.topic, name));
  const body = h("div");
  let turn = 0;
  effect(() => {
    const bytes = data.value;
    const id = chosen.value;
    const mine = ++turn;
    const control = new AbortController();
    onDispose(() => control.abort());
    decoded(bytes, id, place.topic, isCut.value, control.signal).then(
      ({ node, note }) => {
        if (mine !== turn) return;
        body.replaceChildren(node);
        said.set(note);
      },
      (error) => {
        if (mine !== turn || control.signal.aborted) return;
        said.set(error instanceof Error ? error.message : String(error));
        body.replaceChildren(hexView(bytes));
      },
    );
  });
  const said = signal("");
  const picker = h(
    "select",
    {
      aria: { label: `Decoder of the ${name}` },
      on: {
        change: () => {
          remember(place.topic, name, picker.value);
          chosen.set(picker.value);
        },
      },
    },
    h("option", { value: "auto" }, "Auto"),
    decoders().map((each) => h("option", { value: each.id }, each.label)),
  );
  picker.value = chosen.peek();
  const raw = `${recordPath(place)}/${name}`;
  return h(
    "section",
    { class: "part", data: { part: name } },
    h(
      "header",
      null,
      h("h3", null, label, " ", h("span", { class: "muted small" }, size(length))),
      h("div", { class: "row" }, h("span", { class: "muted small" }, () => said.value), picker, h("a", { class: "small", href: url(raw), download: "" }, "Download"), copyAs(data)),
    ),
    () => (isCut.value ? loadWhole(raw, Number(whole), data, isCut) : null),
    body,
  );
}

/** @param {import("../lib/signal.js").Signal<Uint8Array>} data */
function copyAs(data) {
  return h("button", { type: "button", class: "plain small", on: { click: () => copy(new TextDecoder().decode(data.peek()).slice(0, COPIED_CHARS_MAX)) } }, "Copy");
}

/**
 * @param {string} raw
 * @param {number} whole
 * @param {import("../lib/signal.js").Signal<Uint8Array>} data
 * @param {import("../lib/signal.js").Signal<boolean>} isCut
 */
function loadWhole(raw, whole, data, isCut) {
  const wrong = signal("");
  const busy = signal(false);
  const load = async () => {
    busy.set(true);
    wrong.set("");
    try {
      const response = await fetch(url(raw), { credentials: "same-origin" });
      if (!response.ok) throw new ApiError(response.status, "error", `The response has status ${response.status}.`);
      const found = new Uint8Array(await response.arrayBuffer());
      batch(() => {
        isCut.set(false);
        data.set(found);
      });
    } catch (error) {
      wrong.set(error instanceof Error ? error.message : String(error));
    } finally {
      busy.set(false);
    }
  };
  const tooMuch = whole > LOADED_MAX;
  return h(
    "p",
    { class: "small" },
    `Only the first ${size(LOADED_BY_ITSELF)} of ${size(whole)} are shown. `,
    tooMuch ? "Download it to see the rest." : h("button", { type: "button", class: "link", disabled: () => busy.value, on: { click: load } }, () => (busy.value ? "Loading…" : "Load all of it")),
    h("span", { class: "field-error", role: "alert" }, () => wrong.value),
  );
}

/**
 * @param {Uint8Array} bytes
 * @param {string} id
 * @param {string} topic
 * @param {boolean} isCut
 * @param {AbortSignal} signal
 * @returns {Promise<{node: Node, note: string}>}
 */
async function decoded(bytes, id, topic, isCut, signal) {
  if (!bytes.length) return { node: h("p", { class: "record-none" }, "empty"), note: "" };
  const decoder = id === "auto" ? detect(bytes) : (decoders().find((each) => each.id === id) ?? detect(bytes));
  const other = id === "auto" ? container(bytes) : "";
  const label = id === "auto" ? (decoder.id === "hex" && other ? other : decoder.label) : "";
  try {
    return { node: shown(await decoder.decode(bytes, topic, signal), bytes), note: label };
  } catch (error) {
    signal.throwIfAborted();
    if (id !== "auto" && !isCut) throw error;
    // What looked like JSON is not, or is cut: it is still text.
    const text = decoders().find((each) => each.id === "text");
    const node = decoder.id === "json" && text ? shown(await text.decode(bytes, topic), bytes) : hexView(bytes);
    return { node, note: isCut ? "" : decoder.id === "json" ? "Text" : "" };
  }
}

/**
 * @param {import("../lib/record-bytes.js").Shown} what
 * @param {Uint8Array} bytes
 * @returns {Node}
 */
function shown(what, bytes) {
  if (what.kind === "hex") return hexView(bytes);
  if (what.kind === "text") return longText(what.text);
  const isTree = signal(true);
  const whole = what.value !== null && typeof what.value === "object";
  if (!whole) return longText(prettyJson(what.value, TEXT_CHARS));
  return h(
    "div",
    null,
    h("button", { type: "button", class: "link small", on: { click: () => isTree.update((now) => !now) } }, () => (isTree.value ? "As text" : "As tree")),
    () => (isTree.value ? jsonTree(what.value, { open: 2 }) : longText(what.text.length > PRETTY_CHARS ? what.text : prettyJson(what.value, PRETTY_CHARS * 2))),
  );
}

/**
 * Text, a piece at a time: a browser needs seconds to lay out megabytes.
 * @param {string} whole
 */
function longText(whole) {
  const block = h("pre", { class: "block", tabIndex: 0, translate: false });
  let at = 0;
  const more = h("button", { type: "button", class: "link small", on: { click: () => next() } });
  const next = () => {
    block.append(visible(whole.slice(at, at + TEXT_CHARS), true));
    at += TEXT_CHARS;
    const left = whole.length - at;
    more.hidden = left <= 0;
    more.textContent = left > 0 ? `Show ${count(Math.min(left, TEXT_CHARS))} more of ${count(left)} characters` : "";
  };
  next();
  return h("div", null, block, more);
}

/** @param {any} record */
function headers(record) {
  /** @type {{key: string, value: string | null}[]} */
  const all = record.headers;
  const cutTo = record.cut.headers;
  const body = h("tbody");
  let at = 0;
  const more = h("button", { type: "button", class: "link small", on: { click: () => next() } });
  const next = () => {
    for (const each of all.slice(at, at + HEADERS)) {
      const bytes = each.value === null ? null : fromBase64(each.value);
      const inside = bytes === null ? h("span", { class: "record-none" }, "null") : headerValue(bytes);
      body.append(h("tr", null, h("th", { scope: "row" }, h("bdi", null, visible(each.key).slice(0, 1000))), h("td", null, inside)));
    }
    at += HEADERS;
    more.hidden = at >= all.length;
    more.textContent = `Show more of ${count(all.length - at)} headers`;
  };
  next();
  return h(
    "section",
    { class: "part", data: { part: "headers" } },
    h("header", null, h("h3", null, "Headers ", h("span", { class: "muted small" }, count(all.length)))),
    cutTo ? h("p", { class: "small" }, `Only the first of ${size(cutTo)} of headers are shown.`) : null,
    all.length ? h("table", { class: "headers-table" }, body) : h("p", { class: "record-none" }, "none"),
    more,
  );
}

/** @param {Uint8Array} bytes */
function headerValue(bytes) {
  const decoder = detect(bytes);
  if (decoder.id === "text" || decoder.id === "json") return h("bdi", { class: "mono" }, visible(new TextDecoder().decode(bytes.subarray(0, 4000))), bytes.length > 4000 ? "…" : "");
  return h("code", null, `0x${[...bytes.subarray(0, 200)].map((byte) => byte.toString(16).padStart(2, "0")).join("")}${bytes.length > 200 ? "…" : ""}`);
}

/** @param {string} topic @param {string} name */
function remembered(topic, name) {
  try {
    return localStorage.getItem(`decoder:${name}:${topic}`) ?? "auto";
  } catch {
    return "auto"; // storage is switched off
  }
}

/** @param {string} topic @param {string} name @param {string} id */
function remember(topic, name, id) {
  try {
    if (id === "auto") localStorage.removeItem(`decoder:${name}:${topic}`);
    else localStorage.setItem(`decoder:${name}:${topic}`, id);
  } catch {
    // storage is switched off
  }
}
