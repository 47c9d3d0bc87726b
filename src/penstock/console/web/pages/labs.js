// Labs: experiments on this node that show how a log works, one step at a time; and the replay of a simulated cluster.

import { h } from "../lib/dom.js";
import { pageHeader, problem } from "../lib/layout.js";
import { link } from "../lib/router.js";

/** Names in the address, titles, and what one sees. @type {Record<string, [string, string]>} */
const LABS = {
  segments: ["Segments", "How segment.bytes splits a log into files, what their names mean, and how a log loses its oldest records."],
  index: ["Sparse index", "How an offset is found in a log without reading it: a small index, a binary search, and a short scan."],
  isr: ["In-sync replicas", "What happens to replicas, leaders and the high watermark while a broker is away. Needs three nodes."],
  simulator: ["Simulator", "Replay a simulated cluster, event by event: crashes, power cuts, elections, and what clients see."],
};

/** @param {Record<string, string>} params */
export const title = (params) => (params.lab ? (LABS[params.lab]?.[0] ?? "Labs") : "Labs");
export const keeps = ["step"];

/** @param {import("../lib/router.js").Context} ctx */
export async function page(ctx) {
  const { lab } = ctx.params;
  if (!lab) return overview();
  if (!LABS[lab]) return problem(new Error(`There is no lab named ${lab}.`), link("/labs", null, "All labs"));
  const module = await import(`./labs/${lab}.js`);
  const [name, about] = LABS[lab];
  return h("div", null, pageHeader({ title: name, about, crumbs: [["Labs", "/labs"]] }), module.content(ctx));
}

function overview() {
  return h(
    "div",
    null,
    pageHeader({ title: "Labs", about: "Each lab works on topics of its own, whose names begin with lab., and deletes them at its end." }),
    h(
      "div",
      { class: "lab-list" },
      Object.entries(LABS).map(([name, [label, about]]) => link(`/labs/${name}`, { class: "card lab-card" }, h("h2", null, label), h("p", { class: "muted" }, about))),
    ),
  );
}
