// All brokers, also fenced ones: what they lead and hold, and their disks.

import { api, poll, whyNot } from "../../lib/api.js";
import { confirm } from "../../lib/dialog.js";
import { h } from "../../lib/dom.js";
import { bytes, count, percent } from "../../lib/format.js";
import { kept } from "../../lib/kept.js";
import { actionButton, badge, stat } from "../../lib/layout.js";
import { link, navigate, path } from "../../lib/router.js";
import { computed } from "../../lib/signal.js";
import { table } from "../../lib/table.js";
import { toast } from "../../lib/toast.js";

/** @typedef {{path: string, total_bytes: number, free_bytes: number, logs_bytes: number}} Disk */
/** @typedef {{id: number, rack: string | null, fenced: boolean, in_controlled_shutdown: boolean, epoch: number, endpoints: {listener: string, host: string, port: number}[], is_controller: boolean, leaders: number, preferred_leaders: number, replicas: number, out_of_sync: number, disk: Disk | null}} Broker */

const SCARCE = 0.1; // of a disk that is free

/** @returns {Promise<{brokers: Broker[]}>} */
export const getBrokers = (/** @type {AbortSignal} */ signal) => api.get("/brokers", null, { signal });

/** @param {Broker} broker */
export function brokerState(broker) {
  if (broker.fenced) return badge("fenced", "bad", "Stopped, unreachable or starting: it leads no partition, and clients do not see it.");
  if (broker.in_controlled_shutdown) return badge("shutting down", "warn");
  return badge("up", "ok");
}

/** @param {Broker} broker */
export const addresses = (broker) => broker.endpoints.map((each) => `${each.listener} ${each.host}:${each.port}`).join(", ");
/** Without the names of listeners. @param {Broker} broker */
const hosts = (broker) => broker.endpoints.map((each) => `${each.host}:${each.port}`).join(", ");

/** @param {Disk | null} disk */
export function free(disk) {
  if (!disk) return h("span", { class: "muted" }, "–");
  const part = disk.free_bytes / Math.max(1, disk.total_bytes);
  return h("span", { title: `${bytes(disk.free_bytes)} of ${bytes(disk.total_bytes)} at ${disk.path}` }, part < SCARCE ? badge(`${bytes(disk.free_bytes)} (${percent(part)})`, "bad") : `${bytes(disk.free_bytes)} (${percent(part)})`);
}

export function part() {
  const found = poll(getBrokers, 5);
  const cluster = poll(/** @returns {Promise<{cluster_id: string, features: Record<string, number>}>} */ (signal) => api.get("/cluster", null, { signal }), 30);
  return kept(found, (value) => {
    const rows = computed(() => value.value.brokers);
    const sum = (/** @type {(each: Broker) => number} */ of) => rows.value.reduce((all, each) => all + of(each), 0);
    const misplaced = () => rows.value.reduce((all, each) => all + Math.max(0, each.preferred_leaders - each.leaders), 0);
    return [
      h(
        "div",
        { class: "stats" },
        stat("Brokers up", () => `${count(rows.value.filter((each) => !each.fenced).length)} of ${count(rows.value.length)}`, { tone: () => (rows.value.some((each) => each.fenced) ? "bad" : "ok") }),
        stat("Active controller", () => {
          const leader = rows.value.find((each) => each.is_controller);
          return leader ? `broker ${leader.id}` : "not a broker";
        }),
        stat("Replicas", () => count(sum((each) => each.replicas))),
        stat("Out of sync", () => count(sum((each) => each.out_of_sync)), { tone: () => (sum((each) => each.out_of_sync) ? "warn" : "ok") }),
        stat("Size of logs", () => bytes(sum((each) => each.disk?.logs_bytes ?? 0))),
        stat("metadata.version", () => cluster.value.value?.features["metadata.version"] ?? "–", { hint: "level of the cluster's features" }),
      ),
      h(
        "div",
        { class: "toolbar" },
        h("span", { class: "muted" }, () => (misplaced() ? `${count(misplaced())} more ${misplaced() === 1 ? "partition" : "partitions"} could be led by the preferred replica.` : "Leaders are where they should be.")),
        h("span", { class: "spacer-x" }),
        actionButton("Elect preferred leaders…", () => askElection(found.refresh), { why: whyNot }),
      ),
      table({
        label: "Brokers",
        rows,
        key: (each) => String(each.id),
        onOpen: (each) => navigate(path("cluster", "brokers", each.id)),
        columns: [
          { key: "id", title: "Broker", width: 80, value: (each) => each.id, cell: (each) => link(path("cluster", "brokers", each.id), null, String(each.id)) },
          { key: "state", title: "State", width: 140, value: (each) => (each.fenced ? 2 : each.in_controlled_shutdown ? 1 : 0), cell: (each) => [brokerState(each), each.is_controller ? [" ", badge("controller", "info", "The active controller")] : null] },
          { key: "rack", title: "Rack", width: 80, value: (each) => each.rack, cell: (each) => each.rack ?? "–" },
          { key: "endpoints", title: "Listens at", value: hosts, hint: addresses },
          { key: "leaders", title: "Leads", width: 80, align: "right", about: "Partitions that it leads", value: (each) => each.leaders, cell: (each) => count(each.leaders), hint: (each) => `${count(each.preferred_leaders)} with it as preferred leader` },
          { key: "replicas", title: "Replicas", width: 98, align: "right", value: (each) => each.replicas, cell: (each) => count(each.replicas) },
          { key: "behind", title: "Out of sync", width: 122, align: "right", value: (each) => each.out_of_sync, cell: (each) => (each.out_of_sync ? badge(count(each.out_of_sync), "warn") : "0") },
          { key: "logs", title: "Logs", width: 90, align: "right", value: (each) => each.disk?.logs_bytes ?? null, cell: (each) => bytes(each.disk?.logs_bytes) },
          { key: "free", title: "Disk free", width: 150, align: "right", value: (each) => each.disk?.free_bytes ?? null, cell: (each) => free(each.disk) },
        ],
      }),
    ];
  });
}

/** @param {() => void} then */
function askElection(then) {
  confirm({
    title: "Elect preferred leaders?",
    text: "In every partition that another replica leads, the first replica becomes the leader, if it is in sync. Clients follow within a moment.",
    label: "Elect",
    action: async () => {
      const done = await api.post("/elections", {});
      toast(done.elected ? `${count(done.elected)} ${done.elected === 1 ? "partition has" : "partitions have"} another leader.` : "No leader had to change.");
      then();
    },
  });
}
