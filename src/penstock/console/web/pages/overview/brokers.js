// The brokers with their load and disks, and the quorum of controllers.

import { h } from "../../lib/dom.js";
import { bytes, count, duration, percent, rate } from "../../lib/format.js";
import { badge, card } from "../../lib/layout.js";
import { link, navigate } from "../../lib/router.js";
import { computed } from "../../lib/signal.js";
import { table } from "../../lib/table.js";

/** @param {import("../../lib/signal.js").Computed<any>} found an overview */
export function brokers(found) {
  const rows = computed(() => found.value?.brokers ?? []);
  const path = (/** @type {any} */ row) => `/cluster/brokers/${row.id}`;
  return card(
    "Brokers",
    quorum(found),
    table({
      label: "Brokers",
      rows,
      key: (row) => String(row.id),
      onOpen: (row) => navigate(path(row)),
      height: "420px",
      sort: { key: "id" },
      columns: [
        { key: "id", title: "ID", width: 60, value: (row) => row.id, cell: (row) => link(path(row), null, String(row.id)), hint: (row) => (row.rack === null ? "" : `rack ${row.rack}`) },
        { key: "state", title: "State", width: 88, value: (row) => row.state, cell: state, hint: (row) => row.missing ?? row.problems[0]?.message ?? "" },
        { key: "leaders", title: "Leads", width: 116, align: "right", value: (row) => row.leaders, cell: (row) => `${count(row.leaders)} of ${count(row.replicas)}`, about: "Partitions that it leads, and that it has a replica of" },
        { key: "in", title: "Written", width: 92, align: "right", value: (row) => row.rates?.bytes_in, cell: (row) => rate(row.rates?.bytes_in, "bytes") },
        { key: "out", title: "Read", width: 92, align: "right", value: (row) => row.rates?.bytes_out, cell: (row) => rate(row.rates?.bytes_out, "bytes") },
        { key: "requests", title: "Requests", width: 98, align: "right", value: (row) => row.rates?.requests, cell: (row) => rate(row.rates?.requests) },
        { key: "connections", title: "Clients", width: 78, align: "right", value: (row) => row.connections, cell: (row) => count(row.connections), about: "Open connections" },
        { key: "cpu", title: "CPU", width: 60, align: "right", value: (row) => row.cpu, cell: (row) => percent(row.cpu), about: "100% is one core" },
        { key: "memory", title: "Memory", width: 84, align: "right", value: (row) => row.memory_bytes, cell: (row) => bytes(row.memory_bytes) },
        { key: "logs", title: "Logs", width: 84, align: "right", value: (row) => row.log_bytes, cell: (row) => bytes(row.log_bytes) },
        { key: "disk", title: "Disk", width: 132, value: used, cell: disk, hint: (row) => `${bytes(row.disk_usable_bytes)} of ${bytes(row.disk_bytes)} free` },
        { key: "uptime", title: "Up for", width: 112, align: "right", value: (row) => row.uptime_ms, cell: (row) => duration(row.uptime_ms) },
        { key: "version", title: "Version", width: 86, value: (row) => row.version, cell: (row) => row.version ?? "–" },
      ],
    }),
  );
}

/** @param {any} row */
function state(row) {
  if (row.state === "fenced") return badge("down", "bad", row.missing ?? "");
  if (row.missing) return badge("silent", "bad", row.missing);
  if (row.state === "stopping") return badge("stopping", "warn");
  if (row.problems.length) return badge("trouble", "bad", row.problems[0].message);
  return row.warnings.length ? badge("up", "warn", row.warnings[0].message) : badge("up", "ok");
}

/** @param {any} row */
function used(row) {
  return row.disk_bytes ? 1 - row.disk_usable_bytes / row.disk_bytes : null;
}

/** @param {any} row */
function disk(row) {
  const part = used(row);
  if (part === null) return "–";
  const tone = part > 0.95 ? "bad" : part > 0.85 ? "warn" : "ok";
  const meter = h("meter", { min: 0, max: 1, value: part, high: 0.85, optimum: 0, aria: { label: `Disk of broker ${row.id}` } });
  return h("span", { class: "overview-disk", data: { tone } }, meter, percent(part));
}

/** The voters, and how far they are behind. @param {import("../../lib/signal.js").Computed<any>} found */
function quorum(found) {
  return h("p", { class: "overview-quorum muted small" }, () => {
    const { leader, epoch, voters } = found.value.quorum;
    const each = voters.map((/** @type {any} */ voter) => {
      if (voter.id === leader) return badge(`${voter.id} leads`, "ok");
      if (voter.lag === null) return badge(String(voter.id), "neutral");
      const isBehind = (voter.behind_ms ?? 0) > 10_000;
      const title = isBehind ? `${count(voter.lag)} records and ${duration(voter.behind_ms)} behind` : "it has all records";
      return badge(isBehind ? `${voter.id} is ${duration(voter.behind_ms)} behind` : `${voter.id} follows`, isBehind ? "bad" : "neutral", title);
    });
    return ["Controller quorum: ", each.flatMap((/** @type {Node} */ voter) => [voter, " "]), `epoch ${epoch}`];
  });
}
