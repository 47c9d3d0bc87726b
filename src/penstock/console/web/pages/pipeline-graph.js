// The graph of a pipeline, drawn with SVG: sources on the left, sinks on the right, each node right of all that it reads.

import { h, svg } from "../lib/dom.js";
import { compact } from "../lib/format.js";
import { BASE, navigate, path } from "../lib/router.js";

/** @typedef {import("./pipeline-parts.js").Pipeline} Pipeline */
/** @typedef {import("./pipeline-parts.js").GraphNode} GraphNode */
/** @typedef {{node: GraphNode | null, x: number, y: number, height: number}} Placed without a node: where an edge passes */

const WIDTH = 164;
const HEIGHT = 48;
const LANE = 8; // height of an edge that passes a column
const GAP_X = 40;
const GAP_Y = 16;
const EDGE = 4;
const NAME_CHARS = 17;
const LINE_CHARS = 21;

/**
 * @param {Pipeline} pipeline
 * @returns {HTMLElement}
 */
export function pipelineGraph(pipeline) {
  const { placed, routes } = layout(pipeline);
  const boxes = [...placed.values()];
  const width = Math.max(...boxes.map((each) => each.x), 0) + WIDTH + EDGE;
  const height = Math.max(...boxes.map((each) => each.y), 0) + HEIGHT + EDGE;
  return h(
    "div",
    { class: "graph", tabIndex: 0, role: "region", aria: { label: `Graph of pipeline ${pipeline.pipeline}` } },
    svg(
      "svg",
      { viewBox: `0 0 ${width} ${height}`, width, height, role: "group", aria: { label: "Sources, views, flows and sinks" } },
      routes.map(edge),
      boxes.map((each) => (each.node ? box(each.node, each.x, each.y, pipeline) : null)),
    ),
  );
}

/** @param {Placed[]} route */
function edge(route) {
  const parts = route.slice(1).map((to, at) => {
    const from = route[at];
    const [x1, y1, x2, y2] = [from.x + WIDTH, from.y + from.height / 2, to.x, to.y + to.height / 2];
    const bend = (x2 - x1) / 2;
    const across = to.node ? "" : ` H${x2 + WIDTH}`;
    return `${at ? "" : `M${x1},${y1} `}C${x1 + bend},${y1} ${x2 - bend},${y2} ${x2},${y2}${across}`;
  });
  return svg("path", { class: "graph-edge", d: parts.join(" "), aria: { hidden: "true" } });
}

/**
 * @param {GraphNode} node
 * @param {number} x
 * @param {number} y
 * @param {Pipeline} pipeline
 */
function box(node, x, y, pipeline) {
  const flow = node.kind === "flow" ? pipeline.flows.find((each) => `flow:${each.flow}` === node.id) : undefined;
  const line = flow ? [flow.state === "running" ? `${compact(flow.rows_per_s)} rows/s` : flow.state, flow.lag === null ? "" : `lag ${compact(flow.lag)}`].filter(Boolean).join(" · ") : node.what || node.kind;
  const whole = `${node.kind} ${node.name}${node.what ? `: ${node.what}` : ""}`;
  const inside = [
    svg("title", null, whole),
    svg("rect", { x, y, width: WIDTH, height: HEIGHT, rx: 6 }),
    svg("rect", { class: "graph-mark", x, y: y + 8, width: 3, height: HEIGHT - 16, rx: 1.5 }),
    svg("text", { class: "graph-name", x: x + 14, y: y + 20 }, cut(node.name, NAME_CHARS)),
    svg("text", { class: "graph-line", x: x + 14, y: y + 37 }, cut(line, LINE_CHARS)),
  ];
  const marks = { class: `graph-node ${node.kind}${flow ? ` ${flow.state}` : ""}` };
  const target = flow?.group ? path("groups", flow.group) : node.topics.length === 1 ? path("topics", node.topics[0]) : null;
  if (target === null) return svg("g", { ...marks, role: "img", aria: { label: whole } }, inside);
  return svg("a", { ...marks, href: BASE + target, aria: { label: whole }, on: { click: (/** @type {MouseEvent} */ event) => follow(event, target) } }, inside);
}

/**
 * @param {MouseEvent} event
 * @param {string} target
 */
function follow(event, target) {
  if (event.button || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
  event.preventDefault();
  navigate(target);
}

/**
 * @param {string} text
 * @param {number} chars
 */
function cut(text, chars) {
  return text.length > chars ? `${text.slice(0, chars - 1)}…` : text;
}

/**
 * A column for each distance from the sources, with flows and sinks in the last two. An edge over several columns has a
 * place in each of them, so that it passes between nodes. Within a column, what is read from the same nodes stands together.
 * @param {Pipeline} pipeline
 * @returns {{placed: Map<string, Placed>, routes: Placed[][]}} routes are the places of each edge, from left to right
 */
function layout(pipeline) {
  const nodes = new Map(pipeline.nodes.map((each) => [each.id, each]));
  const edges = pipeline.edges.filter((each) => nodes.has(each.source) && nodes.has(each.target));
  const column = columns(nodes, edges);
  const last = Math.max(0, ...column.values());
  /** @type {{id: string, node: GraphNode | null, reads: string[]}[][]} */
  const ranks = Array.from({ length: last + 1 }, () => []);
  for (const [id, node] of nodes) ranks[Number(column.get(id))].push({ id, node, reads: [] });
  const member = new Map(ranks.flat().map((each) => [each.id, each]));
  const paths = edges.map(({ source, target }, number) => {
    const ids = [source];
    for (let at = Number(column.get(source)) + 1; at < Number(column.get(target)); at++) {
      const id = `${number}/${at}`;
      ranks[at].push({ id, node: null, reads: [ids[ids.length - 1]] });
      ids.push(id);
    }
    member.get(target)?.reads.push(ids[ids.length - 1]);
    return [...ids, target];
  });
  /** @type {Map<string, Placed>} */
  const placed = new Map();
  for (const [at, rank] of ranks.entries()) {
    const middle = (/** @type {string[]} */ reads) => {
      const found = reads.map((id) => placed.get(id)).filter((each) => each !== undefined);
      return found.length ? found.reduce((sum, each) => sum + each.y + each.height / 2, 0) / found.length : 0;
    };
    const ranked = rank.map((each) => ({ ...each, wanted: middle(each.reads) })).sort((a, b) => a.wanted - b.wanted);
    let free = EDGE;
    for (const { id, node, wanted } of ranked) {
      const height = node ? HEIGHT : LANE;
      const y = Math.max(free, wanted - height / 2);
      placed.set(id, { node, x: EDGE + at * (WIDTH + GAP_X), y, height });
      free = y + height + GAP_Y;
    }
  }
  return { placed, routes: paths.map((ids) => ids.map((id) => /** @type {Placed} */ (placed.get(id)))) };
}

/**
 * @param {Map<string, GraphNode>} nodes
 * @param {import("./pipeline-parts.js").GraphEdge[]} edges
 * @returns {Map<string, number>}
 */
function columns(nodes, edges) {
  const column = new Map([...nodes.keys()].map((id) => [id, 0]));
  // A report has no circles; if one had, the number of rounds would end them.
  for (let round = 0, isMoved = true; isMoved && round < nodes.size; round++) {
    isMoved = false;
    for (const { source, target } of edges) {
      const wanted = Number(column.get(source)) + 1;
      if (Number(column.get(target)) < wanted) {
        column.set(target, wanted);
        isMoved = true;
      }
    }
  }
  const last = Math.max(0, ...column.values());
  for (const [id, { kind }] of nodes) if (kind === "flow" || kind === "sink") column.set(id, kind === "sink" ? last : Math.max(0, last - 1));
  return column;
}
