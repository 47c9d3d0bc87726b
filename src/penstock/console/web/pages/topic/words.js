// Values of topic settings in words: 86400000 is "1 day". And the groups that settings are shown in.

import { bytes, count, percent } from "../../lib/format.js";

const NEVER = "9223372036854775807"; // the largest number of 64 bits

/** @type {[number, string][]} */
const SPANS = [
  [86_400_000, "day"],
  [3_600_000, "hour"],
  [60_000, "minute"],
  [1000, "second"],
  [1, "millisecond"],
];

/**
 * 90061000 is "1 day 1 hour": the two largest units, in words.
 * @param {number} ms
 * @returns {string}
 */
export function span(ms) {
  if (ms === 0) return "0 milliseconds";
  const parts = [];
  let left = ms;
  for (const [size, name] of SPANS) {
    const n = Math.floor(left / size);
    left -= n * size;
    if (n > 0) parts.push(`${count(n)} ${name}${n === 1 ? "" : "s"}`);
    if (parts.length === 2) break;
  }
  return parts.join(" ");
}

/** @type {Record<string, Record<string, string>>} */
const SPECIAL = {
  "retention.ms": { "-1": "forever" },
  "retention.bytes": { "-1": "no limit" },
  "local.retention.ms": { "-2": "as retention.ms" },
  "local.retention.bytes": { "-2": "as retention.bytes" },
  "cleanup.policy": {
    "": "nothing is deleted or compacted",
    delete: "old segments are deleted",
    compact: "each key's latest record is kept",
    "compact,delete": "compacted, and old segments are deleted",
    "delete,compact": "compacted, and old segments are deleted",
  },
  "compression.type": { producer: "as the producer sends it", uncompressed: "stored without compression" },
  "message.timestamp.type": { CreateTime: "the producer's time", LogAppendTime: "the time of the append" },
  "compression.gzip.level": { "-1": "gzip's own default" },
};

/**
 * What a value means; empty if the value says it itself.
 * @param {string} name
 * @param {string | null} value
 * @returns {string}
 */
export function words(name, value) {
  if (value === null || value === undefined) return "not set";
  const special = SPECIAL[name]?.[value];
  if (special) return special;
  if (value === "") return "none";
  const text = value.trim();
  if (text === NEVER) return "no limit";
  if (!/^-?\d+(\.\d+)?$/.test(text)) return "";
  const n = Number(text);
  if (name.endsWith(".ms") && n >= 0) return span(n);
  if (name.endsWith(".bytes") && n >= 0) return bytes(n);
  if (name.endsWith(".ratio")) return percent(n);
  return "";
}

/**
 * A value with its meaning: "604800000 (7 days)".
 * @param {string} name
 * @param {string | null} value
 * @returns {string}
 */
export function withWords(name, value) {
  const meaning = words(name, value);
  if (value === null || value === "") return meaning;
  return meaning ? `${value} (${meaning})` : value;
}

/** @type {[string, RegExp][]} */
const GROUPS = [
  ["Retention and clean-up", /^(retention\.|cleanup\.policy|delete\.retention|file\.delete|local\.retention)/],
  ["Compaction", /compaction|min\.cleanable/],
  ["Segments and indexes", /^(segment\.|index\.|search\.|preallocate|internal\.segment)/],
  ["Messages", /^(max\.message|message\.|compression\.|record\.validation|idempotency)/],
  ["Replication", /^(min\.insync|unclean|follower\.|leader\.)/],
  ["Syncing to disk", /^flush\./],
];

/**
 * The group that a setting is shown in.
 * @param {string} name
 * @returns {string}
 */
export function groupOf(name) {
  return GROUPS.find(([, pattern]) => pattern.test(name))?.[0] ?? "Other";
}

export const GROUP_NAMES = [...GROUPS.map(([name]) => name), "Other"];

/** Retention of a topic in a few letters: "7 days", "forever", "1 GB", "compacted". @param {{retention_ms: number | null, retention_bytes: number | null, cleanup_policy: string[] | null}} topic */
export function retention({ retention_ms: ms, retention_bytes: size, cleanup_policy: policy }) {
  if (ms === null || ms === undefined) return "–";
  if (policy && !policy.includes("delete")) return policy.length ? "compacted" : "forever";
  const parts = [ms < 0 ? "" : span(ms), (size ?? -1) < 0 ? "" : bytes(size)].filter(Boolean);
  return parts.length ? parts.join(", ") : "forever";
}
