// What the bytes of a key or a value look like, and how they are shown.
//
// Bytes are decoded here and not at the node: the page has them exactly as they are, another decoder costs no request,
// the node spends no time on them, and bytes that somebody made to harm a decoder harm one tab.
//
// A module that knows another format, such as a schema registry, adds a decoder with `addDecoder`.

import { parseExact } from "./exact-json.js";
import { readMessagePack } from "./message-pack.js";

/** @typedef {{kind: "json", value: any, text: string} | {kind: "text", text: string} | {kind: "hex"}} Shown */
/**
 * @typedef {object} Decoder
 * @property {string} id
 * @property {string} label
 * @property {(bytes: Uint8Array, text: string | null) => boolean} [looksLike] Whether the decoder is chosen by itself; `text` is the beginning, if that is text.
 * @property {(bytes: Uint8Array, topic: string, signal?: AbortSignal) => Promise<Shown>} decode Throws an error for the reader.
 */

const utf8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

/** @type {Decoder[]} */
const added = [];

/** @type {Decoder[]} */
const DECODERS = [
  { id: "json", label: "JSON", looksLike: (_bytes, text) => text !== null && /^\s*[{[]/.test(text), decode: json },
  { id: "text", label: "Text", looksLike: (_bytes, text) => text !== null, decode: async (bytes) => ({ kind: "text", text: textOr(bytes) }) },
  { id: "gzip", label: "gzip", looksLike: (bytes) => bytes[0] === 0x1f && bytes[1] === 0x8b, decode: gunzip },
  { id: "msgpack", label: "MessagePack", looksLike: looksLikeMessagePack, decode: messagePack },
  { id: "uuid", label: "UUID", looksLike: looksLikeUuid, decode: uuid },
  { id: "number", label: "Number", looksLike: (bytes) => bytes.length === 4 || bytes.length === 8, decode: number },
  { id: "base64", label: "Base64", decode: async (bytes) => ({ kind: "text", text: toBase64(bytes.subarray(0, BASE64_BYTES_MAX)) }) },
  { id: "hex", label: "Hex", decode: async () => ({ kind: "hex" }) },
];
const BASE64_BYTES_MAX = 1 << 20;
const HEAD_BYTES = 1 << 15; // by which text is recognised
const INFLATED_BYTES_MAX = 32 << 20;

/**
 * A decoder of another module comes before the others.
 * @param {Decoder} decoder
 */
export function addDecoder(decoder) {
  if (!added.some((each) => each.id === decoder.id)) added.push(decoder);
}

/** @returns {Decoder[]} */
export function decoders() {
  return [...added, ...DECODERS];
}

/**
 * The decoder that fits.
 * @param {Uint8Array} bytes
 * @returns {Decoder}
 */
export function detect(bytes) {
  const text = textOf(bytes.length > HEAD_BYTES ? trimmed(bytes.subarray(0, HEAD_BYTES)) : bytes);
  return decoders().find((each) => each.looksLike?.(bytes, text)) ?? DECODERS[DECODERS.length - 1];
}

/**
 * Formats that are recognised by their first bytes, but not decoded.
 * @param {Uint8Array} bytes
 * @returns {string} its name; empty for none
 */
export function container(bytes) {
  const begins = (/** @type {number[]} */ ...magic) => magic.every((byte, at) => bytes[at] === byte);
  if (begins(0x4f, 0x62, 0x6a, 0x01)) return "an Avro file";
  if (begins(0x28, 0xb5, 0x2f, 0xfd)) return "Zstandard";
  if (begins(0x50, 0x41, 0x52, 0x31)) return "a Parquet file";
  if (begins(0x50, 0x4b, 0x03, 0x04)) return "a ZIP file";
  if (begins(0x89, 0x50, 0x4e, 0x47)) return "a PNG image";
  if (begins(0) && bytes.length > 5) return `schema ${new DataView(bytes.buffer, bytes.byteOffset).getInt32(1)} of a registry`;
  return "";
}

/**
 * @param {Uint8Array} bytes
 * @returns {string | null} null if they are not UTF-8, or have many control characters
 */
export function textOf(bytes) {
  let text;
  try {
    text = utf8.decode(bytes);
  } catch {
    return null;
  }
  const part = text.slice(0, 4000);
  const strange = part.match(/[\u0000-\u0008\u000e-\u001a\u001c-\u001f\u007f]/g)?.length ?? 0;
  return strange * 10 > part.length ? null : text;
}

/** @param {Uint8Array} bytes */
function textOr(bytes) {
  return new TextDecoder("utf-8", { ignoreBOM: true }).decode(bytes);
}

/** @param {Uint8Array} bytes @param {string} _topic @param {AbortSignal} [signal] @returns {Promise<Shown>} */
async function json(bytes, _topic, signal) {
  let text;
  try {
    text = utf8.decode(bytes);
  } catch {
    throw new Error("Not JSON: it is not UTF-8.");
  }
  return { kind: "json", value: await parseExact(text, signal), text };
}

/** @param {Uint8Array} bytes */
function looksLikeMessagePack(bytes) {
  const first = bytes[0];
  const isContainer = (first >= 0x80 && first <= 0x9f) || (first >= 0xdc && first <= 0xdf);
  if (!isContainer || bytes.length > 1 << 16) return false;
  try {
    readMessagePack(bytes);
    return true;
  } catch {
    return false;
  }
}

/** @param {Uint8Array} bytes @returns {Promise<Shown>} */
async function messagePack(bytes) {
  return { kind: "json", value: readMessagePack(bytes), text: "" };
}

/** @param {Uint8Array} bytes */
function looksLikeUuid(bytes) {
  return bytes.length === 16 && bytes[6] >> 4 >= 1 && bytes[6] >> 4 <= 8 && bytes[8] >> 6 === 2;
}

/** @param {Uint8Array} bytes @returns {Promise<Shown>} */
async function uuid(bytes) {
  if (bytes.length !== 16) throw new Error(`A UUID has 16 bytes; these are ${bytes.length}.`);
  const digits = toHex(bytes);
  return { kind: "text", text: [digits.slice(0, 8), digits.slice(8, 12), digits.slice(12, 16), digits.slice(16, 20), digits.slice(20)].join("-") };
}

/** As Kafka's serializers write numbers: big-endian. @param {Uint8Array} bytes @returns {Promise<Shown>} */
async function number(bytes) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
  /** @type {Record<number, () => string>} */
  const forms = {
    1: () => `${view.getInt8(0)}`,
    2: () => `${view.getInt16(0)}`,
    4: () => `${view.getInt32(0)}\nas a float: ${view.getFloat32(0)}`,
    8: () => `${view.getBigInt64(0)}\nas a double: ${view.getFloat64(0)}`,
  };
  const form = forms[bytes.length];
  if (!form) throw new Error(`A number has 1, 2, 4 or 8 bytes; these are ${bytes.length}.`);
  return { kind: "text", text: form() };
}

/** @param {Uint8Array} bytes @param {string} topic @param {AbortSignal} [signal] @returns {Promise<Shown>} */
async function gunzip(bytes, topic, signal) {
  const whole = await inflated(bytes).catch((error) => {
    throw new Error(`Not gzip: ${error instanceof Error ? error.message : error}`);
  });
  const inside = detect(whole);
  if (inside.id === "gzip" || inside.id === "hex") return { kind: "text", text: toBase64(whole.subarray(0, BASE64_BYTES_MAX)) };
  return inside.decode(whole, topic, signal);
}

/** @param {Uint8Array} bytes */
async function inflated(bytes) {
  const reader = new Blob([/** @type {any} */ (bytes)]).stream().pipeThrough(new DecompressionStream("gzip")).getReader();
  /** @type {Uint8Array[]} */
  const parts = [];
  let size = 0;
  for (;;) {
    const { value, done } = await reader.read();
    if (done) break;
    parts.push(value);
    size += value.length;
    if (size > INFLATED_BYTES_MAX) {
      await reader.cancel();
      throw new Error("it has more than 32 MB.");
    }
  }
  const whole = new Uint8Array(size);
  let at = 0;
  for (const part of parts) {
    whole.set(part, at);
    at += part.length;
  }
  return whole;
}

/** @param {string} text @returns {Uint8Array} */
export function fromBase64(text) {
  const binary = atob(text);
  const bytes = new Uint8Array(binary.length);
  for (let at = 0; at < binary.length; at++) bytes[at] = binary.charCodeAt(at);
  return bytes;
}

/** @param {Uint8Array} bytes */
export function toBase64(bytes) {
  const parts = [];
  for (let at = 0; at < bytes.length; at += 0x2000) parts.push(String.fromCharCode(...bytes.subarray(at, at + 0x2000)));
  return btoa(parts.join(""));
}

/** @param {Uint8Array} bytes */
export function toHex(bytes) {
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/**
 * The bytes of hexadecimal digits, spaces between them allowed; null if they are none.
 * @param {string} text
 * @returns {Uint8Array | null}
 */
export function fromHex(text) {
  const digits = text.replace(/\s+/g, "");
  if (digits.length % 2 || /[^0-9a-fA-F]/.test(digits)) return null;
  return Uint8Array.from({ length: digits.length / 2 }, (_, at) => parseInt(digits.slice(2 * at, 2 * at + 2), 16));
}

const PICTURES = 0x2400; // control characters have visible signs in Unicode from here on

/**
 * Text in which control characters and marks that turn the direction of writing can be seen, and do nothing.
 * @param {string} text
 * @param {boolean} [keepsLines] Leave line ends and tabs.
 */
export function visible(text, keepsLines = false) {
  return text.replace(/[\u0000-\u001f\u007f-\u009f\u061c\u200e\u200f\u202a-\u202e\u2028\u2029\u2066-\u2069]/g, (char) => {
    const code = char.charCodeAt(0);
    if (keepsLines && (char === "\n" || char === "\t")) return char;
    if (keepsLines && char === "\r") return "";
    if (code < 0x20) return String.fromCharCode(PICTURES + code);
    if (code === 0x7f) return "\u2421";
    return `[U+${code.toString(16).toUpperCase().padStart(4, "0")}]`;
  });
}

/**
 * A line about bytes, for a list.
 * @param {Uint8Array} bytes
 * @param {number} charsMax
 */
export function preview(bytes, charsMax) {
  const text = textOf(bytes.subarray(0, charsMax * 4));
  if (text !== null || bytes.length > charsMax * 4) {
    const found = text ?? textOf(trimmed(bytes.subarray(0, charsMax * 4)));
    if (found !== null) return visible(found.slice(0, charsMax));
  }
  return `0x${toHex(bytes.subarray(0, charsMax / 4))}${bytes.length > charsMax / 4 ? "…" : ""}`;
}

/** Without a character that is cut in two at the end. @param {Uint8Array} bytes */
function trimmed(bytes) {
  for (let back = 1; back <= 3 && back < bytes.length; back++) {
    const byte = bytes[bytes.length - back];
    if ((byte & 0xc0) !== 0x80) return byte >= 0xc0 ? bytes.subarray(0, bytes.length - back) : bytes;
  }
  return bytes;
}
