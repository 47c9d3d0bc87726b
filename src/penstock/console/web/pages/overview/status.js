// The sentence at the top: all is well, or what is wrong, with links to where it can be mended.

import { h } from "../../lib/dom.js";
import { count } from "../../lib/format.js";
import { link } from "../../lib/router.js";

/** @typedef {{text: string, path: string}} Part */

const DETAILS_MAX = 20;

/** @param {any} found an overview */
export function status(found) {
  const parts = wrong(found);
  const tone = found.status === "ok" ? "ok" : found.status === "unavailable" ? "bad" : "warn";
  const lines = details(found);
  return h(
    "section",
    { class: "overview-status", data: { tone }, aria: { label: "Status", live: "polite" } },
    h(
      "p",
      { class: "overview-sentence" },
      h("span", { class: "overview-mark", aria: { hidden: "true" } }, tone === "ok" ? "✓" : "!"),
      parts.length ? sentence(parts) : h("strong", null, "All is well"),
      parts.length ? null : h("span", { class: "muted" }, summary(found)),
    ),
    lines.length ? h("ul", null, lines.slice(0, DETAILS_MAX).map((each) => h("li", null, each))) : null,
    lines.length > DETAILS_MAX ? h("p", { class: "muted small" }, `and ${lines.length - DETAILS_MAX} more`) : null,
  );
}

/** @param {any} found */
function summary({ brokers, topics, partitions }) {
  return `${counted(brokers.length, "broker")}, ${counted(topics, "topic")}, ${counted(partitions.total, "partition")}`;
}

/**
 * What is wrong, the worst first.
 * @param {any} found
 * @returns {Part[]}
 */
function wrong({ brokers, partitions, quorum }) {
  const fenced = brokers.filter((/** @type {any} */ each) => each.state === "fenced");
  const silent = brokers.filter((/** @type {any} */ each) => each.missing && each.state !== "fenced");
  const troubled = brokers.filter((/** @type {any} */ each) => each.problems.length);
  /** @type {[any, string, string][]} */
  const all = [
    [quorum.leader === null, "there is no active controller", "/cluster"],
    [partitions.offline, `${counted(partitions.offline, "partition")} ${partitions.offline === 1 ? "has" : "have"} no leader`, "/topics"],
    [fenced.length, `${named(fenced)} down`, "/cluster"],
    [silent.length, `${named(silent)} not answering`, "/cluster"],
    [troubled.length, `${named(troubled)} in trouble`, "/cluster"],
    [partitions.under_min_isr, `${counted(partitions.under_min_isr, "partition")} ${partitions.under_min_isr === 1 ? "refuses" : "refuse"} writes with acks=all`, "/topics"],
    [partitions.under_replicated, `${counted(partitions.under_replicated, "partition")} ${partitions.under_replicated === 1 ? "lacks" : "lack"} replicas`, "/topics"],
  ];
  return all.filter(([is]) => is).map(([, text, path]) => ({ text, path }));
}

/** @param {any[]} brokers */
function named(brokers) {
  if (brokers.length > 3) return `${count(brokers.length)} brokers are`;
  const ids = brokers.map((each) => each.id);
  return ids.length === 1 ? `broker ${ids[0]} is` : `brokers ${ids.slice(0, -1).join(", ")} and ${ids[ids.length - 1]} are`;
}

/** @param {Part[]} parts */
function sentence(parts) {
  return h(
    "strong",
    null,
    parts.map(({ text, path }, index) => [
      index === 0 ? "" : index === parts.length - 1 ? " and " : ", ",
      link(path, null, index === 0 ? text.charAt(0).toUpperCase() + text.slice(1) : text),
    ]),
  );
}

/** @param {any} found @returns {string[]} */
function details({ problems, brokers }) {
  const lines = problems.map((/** @type {any} */ each) => each.message);
  for (const { id, missing, state, problems: own, warnings } of brokers) {
    if (missing && state !== "fenced") lines.push(`broker ${id} does not answer: ${missing}`);
    for (const each of [...own, ...warnings]) lines.push(`broker ${id}: ${each.message}`);
  }
  return lines.map((/** @type {string} */ each) => each.charAt(0).toUpperCase() + each.slice(1));
}

/** @param {number} n @param {string} what */
function counted(n, what) {
  return `${count(n)} ${what}${n === 1 ? "" : "s"}`;
}
