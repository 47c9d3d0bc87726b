// Is all well? The overview of the cluster.

import { api, poll } from "../lib/api.js";
import { count } from "../lib/format.js";
import { h } from "../lib/dom.js";
import { loading, pageHeader, stat } from "../lib/layout.js";

export const title = "Overview";

export function page() {
  const cluster = poll((signal) => api.get("/cluster", null, { signal }), 5);
  return h(
    "div",
    null,
    pageHeader({ title }),
    loading(cluster, (found) =>
      h(
        "div",
        { class: "stats" },
        stat("Brokers", count(found.brokers.filter((/** @type {any} */ each) => !each.fenced).length)),
        stat("Controller", found.controller === null ? "none" : `node ${found.controller}`, { tone: found.controller === null ? "bad" : "ok" }),
        stat("Topics", count(found.topics), { href: "/topics" }),
        stat("Partitions led here", count(found.partitions)),
      ),
    ),
  );
}
