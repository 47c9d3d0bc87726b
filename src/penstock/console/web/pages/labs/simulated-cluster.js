// The state of a simulated cluster after each event of its trace. Events are sentences; those that change the picture are
// recognised here, and the others are only listed.

/** @typedef {{us: number, text: string}} SimEvent */
/** @typedef {{name: string, state: "off" | "starting" | "up" | "stopping", process: number, isController: boolean, leads: Set<string>}} SimNode */
/** @typedef {{nodes: Map<string, SimNode>, partitions: Map<string, {leader: string, epoch: number, sent: number, acked: number, read: number}>, clients: Map<string, string>, isCut: boolean}} SimState */
/** @typedef {"fault" | "election" | "refused" | "client" | "other"} Kind */

/** @type {[RegExp, Kind, (state: SimState, found: string[]) => void][]} */
const PATTERNS = [
  [/^process (\d+) of (\S+) starts/, "election", (state, [, process, name]) => Object.assign(node(state, name), { state: "starting", process: Number(process) })],
  [/^process \d+ of (\S+) is ready/, "election", (state, [, name]) => Object.assign(node(state, name), { state: "up" })],
  [/^process \d+ of (\S+) is asked to stop/, "fault", (state, [, name]) => Object.assign(node(state, name), { state: "stopping" })],
  [/^process \d+ of (\S+) (?:loses power|is killed|has stopped|ends|crashes)/, "fault", (state, [, name]) => down(state, name)],
  [
    /^(node-\d+|\S+) leads the quorum in epoch (\d+)/,
    "election",
    (state, [, name]) => {
      for (const each of state.nodes.values()) each.isController = false;
      node(state, name).isController = true;
    },
  ],
  [
    /^(\S+) leads (\S+-\d+) in epoch (\d+) from (\d+) on/,
    "election",
    (state, [, name, key, epoch]) => {
      for (const each of state.nodes.values()) each.leads.delete(key);
      node(state, name).leads.add(key);
      Object.assign(partition(state, key), { leader: name, epoch: Number(epoch) });
    },
  ],
  [/^(\S+) sends (#\d+ to \S+.*)$/, "client", (state, [, client, what]) => sends(state, client, what)],
  [/^(\S+) (#\d+) is at (\d+)/, "client", (state, [, client, batch, offset]) => acked(state, client, batch, Number(offset))],
  [/reads (\S+-\d+) (\d+)\.\.(\d+)/, "client", (state, [, key, , end]) => (partition(state, key).read = Math.max(partition(state, key).read, Number(end)))],
  [/is refused|cannot fetch|lost its connection|finds \S+: [A-Z]/, "refused", () => {}],
  [/^the network is healed/, "fault", (state) => (state.isCut = false)],
  [/^the network|^link|partitioned|is cut|stalls|is frozen|loses|disk|fails|damaged/, "fault", (state, [text]) => (state.isCut = state.isCut || /network|partitioned|is cut/.test(text))],
];

/** Batches that are on their way: by client and number, their partition. @type {WeakMap<SimState, Map<string, string>>} */
const sentTo = new WeakMap();

/** @returns {SimState} */
export function begin() {
  /** @type {SimState} */
  const state = { nodes: new Map(), partitions: new Map(), clients: new Map(), isCut: false };
  sentTo.set(state, new Map());
  return state;
}

/**
 * @param {SimState} state
 * @param {SimEvent} event
 */
export function apply(state, event) {
  for (const [pattern, , change] of PATTERNS) {
    const found = pattern.exec(event.text);
    if (found) {
      change(state, found[0] === undefined ? [] : [...found].map((each) => each ?? ""));
      return;
    }
  }
}

/**
 * @param {string} text
 * @returns {Kind}
 */
export function kindOf(text) {
  return PATTERNS.find(([pattern]) => pattern.test(text))?.[1] ?? "other";
}

/**
 * The state after a number of events.
 * @param {SimEvent[]} events
 * @param {number} count
 */
export function stateAfter(events, count) {
  const state = begin();
  for (let at = 0; at < count; at++) apply(state, events[at]);
  return state;
}

/**
 * @param {SimState} state
 * @param {string} name
 * @returns {SimNode}
 */
function node(state, name) {
  let found = state.nodes.get(name);
  if (!found) {
    found = { name, state: "off", process: 0, isController: false, leads: new Set() };
    state.nodes.set(name, found);
  }
  return found;
}

/**
 * @param {SimState} state
 * @param {string} name
 */
function down(state, name) {
  Object.assign(node(state, name), { state: "off", isController: false, leads: new Set() });
}

/**
 * @param {SimState} state
 * @param {string} key
 */
function partition(state, key) {
  let found = state.partitions.get(key);
  if (!found) {
    found = { leader: "", epoch: 0, sent: 0, acked: 0, read: 0 };
    state.partitions.set(key, found);
  }
  return found;
}

/**
 * @param {SimState} state
 * @param {string} client
 * @param {string} what "#1 to topic-0-0, #2 to topic-0-1"
 */
function sends(state, client, what) {
  for (const [, batch, key] of what.matchAll(/(#\d+) to ([^\s,]+)/g)) {
    partition(state, key).sent += 1;
    sentTo.get(state)?.set(`${client} ${batch}`, key);
  }
}

/**
 * @param {SimState} state
 * @param {string} client
 * @param {string} batch
 * @param {number} offset
 */
function acked(state, client, batch, offset) {
  const key = sentTo.get(state)?.get(`${client} ${batch}`);
  if (key) partition(state, key).acked = Math.max(partition(state, key).acked, offset + 1);
}
