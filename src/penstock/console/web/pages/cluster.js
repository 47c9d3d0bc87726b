// The cluster: brokers, the quorum of controllers, partitions that move, settings.

import { h } from "../lib/dom.js";
import { pageHeader, tabs } from "../lib/layout.js";
import { signal } from "../lib/signal.js";

export const title = "Cluster";

/** @type {[string, string][]} */
const TABS = [
  ["brokers", "Brokers"],
  ["quorum", "Quorum"],
  ["reassignments", "Reassignments"],
  ["settings", "Settings"],
];

/** @type {Record<string, () => Promise<{part: (ctx: import("../lib/router.js").Context) => Node}>>} */
const PARTS = {
  brokers: () => import("./cluster/brokers.js"),
  quorum: () => import("./cluster/quorum.js"),
  reassignments: () => import("./cluster/reassignments.js"),
  settings: () => import("./cluster/settings.js"),
};

/** @param {import("../lib/router.js").Context} ctx */
export async function page(ctx) {
  const tab = ctx.params.tab ?? "brokers";
  if (!(tab in PARTS)) throw new Error("There is no such page.");
  if (tab === "brokers" && ctx.params.id !== undefined) return (await import("./cluster/broker.js")).part(ctx);
  const { part } = await PARTS[tab]();
  return h("div", null, pageHeader({ title }), tabs(TABS, signal(tab), { href: (id) => `/cluster/${id}` }), part(ctx));
}
