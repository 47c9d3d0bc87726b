// The quorum of controllers: who leads it, and how far each voter and observer has replicated the metadata log.

import { api, poll } from "../../lib/api.js";
import { h } from "../../lib/dom.js";
import { ago, count, utc } from "../../lib/format.js";
import { kept } from "../../lib/kept.js";
import { badge, stat } from "../../lib/layout.js";
import { computed } from "../../lib/signal.js";
import { table } from "../../lib/table.js";

/** @typedef {{id: number, directory_id: string | null, log_end: number | null, lag: number | null, last_fetch_ms: number | null, last_caught_up_ms: number | null, endpoints: {listener: string, host: string, port: number}[]}} Replica */
/** @typedef {{leader: number, epoch: number, high_watermark: number, voters: Replica[], observers: Replica[]}} Quorum */
/** @typedef {Replica & {role: "leader" | "voter" | "observer"}} Row */

const LATE_MS = 10_000; // more than a few fetches

/** @param {Row} each */
function caughtUp(each) {
  if (each.role === "leader") return "now";
  const isLate = each.last_caught_up_ms === null || Date.now() - each.last_caught_up_ms > LATE_MS;
  return isLate ? badge(ago(each.last_caught_up_ms), each.role === "voter" ? "bad" : "warn") : ago(each.last_caught_up_ms);
}

export function part() {
  const found = poll(/** @returns {Promise<Quorum>} */ (signal) => api.get("/quorum", null, { signal }), 3);
  return kept(found, (value) => {
    const rows = computed(() => {
      const { leader, voters, observers } = value.value;
      return [
        ...voters.map((each) => /** @type {Row} */ ({ ...each, role: each.id === leader ? "leader" : "voter" })),
        ...observers.map((each) => /** @type {Row} */ ({ ...each, role: "observer" })),
      ];
    });
    return [
      h(
        "div",
        { class: "stats" },
        stat("Leader", () => `node ${value.value.leader}`),
        stat("Epoch", () => count(value.value.epoch), { hint: "rises with each election" }),
        stat("High watermark", () => count(value.value.high_watermark), { hint: "of the metadata log" }),
        stat("Voters", () => count(value.value.voters.length), { hint: () => `${Math.floor(value.value.voters.length / 2) + 1} needed` }),
      ),
      table({
        label: "Voters and observers",
        rows,
        key: (each) => `${each.role}-${each.id}-${each.directory_id}`,
        columns: [
          { key: "id", title: "Node", width: 80, value: (each) => each.id },
          { key: "role", title: "Role", width: 110, value: (each) => each.role, cell: (each) => badge(each.role, each.role === "leader" ? "info" : "neutral") },
          { key: "address", title: "Listens at", value: (each) => each.endpoints.map((one) => `${one.host}:${one.port}`).join(", ") || "–" },
          { key: "end", title: "Log end", width: 110, align: "right", mono: true, value: (each) => each.log_end, cell: (each) => count(each.log_end) },
          { key: "lag", title: "Lag", width: 90, align: "right", mono: true, about: "Records behind the leader", value: (each) => each.lag, cell: (each) => count(each.lag) },
          { key: "fetch", title: "Last fetch", width: 130, align: "right", value: (each) => each.last_fetch_ms, cell: (each) => (each.role === "leader" ? "–" : ago(each.last_fetch_ms)), hint: (each) => utc(each.last_fetch_ms) },
          { key: "caught", title: "Last caught up", width: 150, align: "right", value: (each) => each.last_caught_up_ms, cell: caughtUp, hint: (each) => utc(each.last_caught_up_ms) },
        ],
      }),
    ];
  });
}
