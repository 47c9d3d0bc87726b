// One broker: its addresses, its disk, and the sizes of its logs.

import { api, poll } from "../../lib/api.js";
import { h } from "../../lib/dom.js";
import { filterInput } from "../../lib/form.js";
import { bytes, count } from "../../lib/format.js";
import { kept } from "../../lib/kept.js";
import { card, keyValue, pageHeader, problem } from "../../lib/layout.js";
import { link, path } from "../../lib/router.js";
import { computed, signal } from "../../lib/signal.js";
import { table } from "../../lib/table.js";
import { addresses, brokerState, free, getBrokers } from "./brokers.js";

/** @typedef {{topics: {topic: string, partitions: number, size_bytes: number}[], partitions: number}} Logs */

const TOPICS_MAX = 10_000;

/** @param {import("../../lib/router.js").Context} ctx */
export function part({ params }) {
  const id = params.id;
  const found = poll(async (signal) => {
    const { brokers } = await getBrokers(signal);
    const broker = brokers.find((each) => String(each.id) === id);
    if (!broker) throw new Error(`There is no broker ${id}; the cluster has ${brokers.map((each) => each.id).join(", ")}.`);
    return broker;
  }, 5);
  const logs = poll(/** @returns {Promise<Logs>} */ (signal) => api.get(`/brokers/${encodeURIComponent(id)}/logs`, { limit: TOPICS_MAX }, { signal }), 15);
  const filter = signal("");
  return h(
    "div",
    null,
    pageHeader({ title: `Broker ${id}`, crumbs: [["Cluster", "/cluster"]], actions: [link(`/cluster/settings?broker=${encodeURIComponent(id)}`, { class: "button" }, "Settings")] }),
    kept(found, (value) => [
      card(
        null,
        keyValue([
          ["State", () => [brokerState(value.value), value.value.is_controller ? " active controller" : ""]],
          ["Listeners", () => h("span", { class: "mono" }, addresses(value.value))],
          ["Rack", () => value.value.rack ?? "none"],
          ["Broker epoch", () => h("span", { class: "mono" }, value.value.epoch)],
          ["Leads", () => `${count(value.value.leaders)} of ${count(value.value.replicas)} replicas; ${count(value.value.preferred_leaders)} as preferred leader`],
          ["Out of sync", () => count(value.value.out_of_sync)],
          ["Log directory", () => h("span", { class: "mono" }, value.value.disk?.path ?? "–")],
          ["Disk free", () => free(value.value.disk)],
        ]),
      ),
      h("div", { class: "toolbar" }, h("h2", null, "Logs by topic"), h("span", { class: "spacer-x" }), filterInput(filter, { placeholder: "Filter by topic" })),
      () => (value.value.fenced ? problem(new Error("The broker is fenced, so the sizes of its logs are not known.")) : null),
      kept(logs, (sizes) =>
        table({
          label: "Logs by topic",
          rows: computed(() => sizes.value.topics),
          key: (each) => each.topic,
          filter,
          sort: { key: "size", desc: true },
          empty: "The broker has no logs.",
          columns: [
            { key: "topic", title: "Topic", value: (each) => each.topic, cell: (each) => link(path("topics", each.topic), null, each.topic) },
            { key: "partitions", title: "Partitions", width: 120, align: "right", value: (each) => each.partitions, cell: (each) => count(each.partitions) },
            { key: "size", title: "Size", width: 140, align: "right", value: (each) => each.size_bytes, cell: (each) => bytes(each.size_bytes) },
          ],
        }),
      ),
    ]),
  );
}
