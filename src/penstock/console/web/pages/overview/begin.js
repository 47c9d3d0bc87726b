// For a cluster without topics: commands to begin with.

import { api, poll } from "../../lib/api.js";
import { h } from "../../lib/dom.js";
import { card, copyButton } from "../../lib/layout.js";
import { link } from "../../lib/router.js";

export function begin() {
  const cluster = poll((signal) => api.get("/cluster", null, { signal }), 600);
  return card(
    "Write the first records",
    h("p", { class: "muted" }, "There is no topic yet. Create one ", link("/topics", null, "here"), ", or begin in a shell:"),
    () => {
      const node = cluster.value.value;
      const broker = node?.brokers.find((/** @type {any} */ each) => each.id === node.node_id);
      const address = broker?.endpoints[0] ? `${window.location.hostname}:${broker.endpoints[0].port}` : `${window.location.hostname}:9092`;
      return h("ul", { class: "overview-commands" }, commands(address, window.location.origin).map(command));
    },
  );
}

/** @param {string} address @param {string} origin @returns {[string, string][]} */
function commands(address, origin) {
  return [
    ["Create a topic", `penstock topics create orders --partitions 3 --server ${address}`],
    ["Write a record", `echo 'customer-7:paid' | penstock produce orders --key-separator : --server ${address}`],
    ["Read it", `penstock consume orders --format '%k: %v' --server ${address}`],
    ["Or write over HTTP", `curl -s ${origin}/produce --json '{"topic": "orders", "key": "YWxpY2U=", "value": "aGVsbG8="}'`],
  ];
}

/** @param {[string, string]} each */
function command([label, line]) {
  return h("li", null, h("span", { class: "small muted" }, label), h("pre", { tabIndex: 0 }, line), copyButton(line));
}
