// The lab of in-sync replicas: a broker stops and returns, and the page watches.

import { api, ApiError, poll } from "../../lib/api.js";
import { h } from "../../lib/dom.js";
import { count, time } from "../../lib/format.js";
import { badge, problem } from "../../lib/layout.js";
import { computed, effect, signal, untracked } from "../../lib/signal.js";
import { command, createTopic, deleteTopics, p, walk, write } from "./steps.js";

const TOPIC = "lab.isr";
const PARTITIONS = 3;
const MESSAGES = 300;
const NEWS_MAX = 50;

/** @typedef {{cluster: any, topic: any}} Seen */

export function content() {
  const seen = poll(async (abort) => {
    const [cluster, topic] = await Promise.all([api.get("/cluster", null, { signal: abort }), described(abort)]);
    return /** @type {Seen} */ ({ cluster, topic });
  }, 2);
  const alive = computed(() => (seen.value.value?.cluster.brokers ?? []).filter((/** @type {any} */ each) => !each.fenced));
  const partitions = computed(() => /** @type {any[]} */ (seen.value.value?.topic?.partitions ?? []));
  const missing = computed(() => [...new Set(partitions.value.flatMap((each) => each.replicas.filter((/** @type {number} */ id) => !each.isr.includes(id))))].sort());
  const isWhole = computed(() => partitions.value.length > 0 && missing.value.length === 0 && partitions.value.every((each) => each.replica_states?.every((/** @type {any} */ one) => one.log_end === each.end)));
  const sent = computed(() => partitions.value.reduce((sum, each) => sum + (each.high_watermark ?? 0), 0));
  const look = (/** @type {Promise<any>} */ done) => done.then(() => seen.refresh());
  const news = chronicle(seen);
  const hasThree = computed(() => (seen.value.value?.cluster.brokers ?? []).length >= 3);
  /** Which broker to stop: one that this page does not come from. */
  const victim = computed(() => {
    const here = seen.value.value?.cluster.node_id;
    return alive.value.map((/** @type {any} */ each) => each.id).filter((/** @type {number} */ id) => id !== here).at(-1) ?? 2;
  });
  const picture = h("section", { class: "card stack", aria: { label: "Replicas" } }, h("h2", null, "Replicas"), () => (seen.value.error ? problem(seen.value.error) : null), () => replicas(partitions.value, seen.value.value?.cluster), news);
  const status = (/** @type {() => [string, import("../../lib/layout.js").Tone]} */ say) => h("p", { role: "status" }, () => badge(...say()));

  return walk("isr", [
    {
      title: "Three nodes",
      text: [
        p("Each partition has replicas on different nodes. One leads; the others fetch from it. Those that keep up are the in-sync replicas, the ISR."),
        () =>
          hasThree.value
            ? p(`This cluster has ${count(seen.value.value?.cluster.brokers.length ?? 0)} brokers: you can go on.`)
            : [
                p("This is a single node: a replica set of one, whose ISR cannot change. Start three on this machine, and open the console of the first, at the address that the command shows:"),
                command("penstock cluster start --brokers 3"),
                p("You can go on here, too: the next steps then show a set of one."),
              ],
      ],
    },
    {
      title: "A topic with three replicas",
      text: [p("The topic has three partitions with as many replicas as there are brokers, three at most, and ", h("code", null, "min.insync.replicas=2"), " where there are three. The bars are the replicas' logs; the line is the high watermark, up to which consumers read.")],
      action: {
        label: `Create ${TOPIC} and write ${MESSAGES} messages`,
        run: async () => {
          const copies = Math.min(3, Math.max(alive.peek().length, 1));
          await createTopic(TOPIC, { partitions: PARTITIONS, replication_factor: copies, configs: copies === 3 ? { "min.insync.replicas": 2 } : {} });
          await look(write(TOPIC, 3, { size: MESSAGES / 3, bytes: 40, partition: null }));
          return "Every in-sync replica has the messages: they are acknowledged only then (acks=all).";
        },
      },
    },
    {
      title: "Stop a broker",
      text: [
        p("Stop one of the brokers, not the one that this page comes from. In another terminal, in the directory of the cluster:"),
        () => command(`penstock cluster stop ${victim.value}`),
        p("Its replicas leave every ISR; they stay replicas, because the broker is expected to return. Partitions that it led get another leader from the ISR, with a higher epoch. With ", h("code", null, "kill"), " instead of ", h("code", null, "stop"), " the same happens once the broker's session is over."),
        status(() => (missing.value.length ? [`Broker ${missing.value.join(", ")} has left the ISR`, "warn"] : [partitions.value.length ? "All replicas are in sync" : "The topic does not exist yet", "neutral"])),
      ],
    },
    {
      title: "Write without it",
      text: [p("Two of three are in sync, and min.insync.replicas is 2: writes go on. The messages below the high watermark are on both.")],
      action: {
        label: `Write ${MESSAGES} more messages`,
        run: async () => {
          await look(write(TOPIC, 3, { size: MESSAGES / 3, bytes: 40, partition: null, from: sent.peek() }));
          return "Acknowledged by all that are in sync.";
        },
      },
    },
    {
      title: "Start it again",
      text: [
        () => command(`penstock cluster restart ${missing.value[0] ?? victim.value}`),
        p("The broker fetches what it lacks from the leaders. When it has reached the end of a leader's log, it is in the ISR again."),
        status(() => (isWhole.value ? [`All replicas are in sync, with ${count(sent.value)} messages`, "ok"] : [missing.value.length ? `Broker ${missing.value.join(", ")} is not in sync` : "Waiting for the topic", "warn"])),
      ],
    },
    {
      title: "Clean up",
      text: [
        p("Nothing was lost and nothing is there twice: each replica's log has the same length. In a terminal ", h("code", null, "penstock lab isr"), " does all of this by itself, with three brokers of its own."),
      ],
      action: {
        label: "Delete the topic",
        sure: `${TOPIC} is deleted with its records.`,
        run: async () => {
          await look(deleteTopics(TOPIC));
          return "The topic is deleted.";
        },
      },
    },
  ], picture);
}

/** @param {AbortSignal} abort */
async function described(abort) {
  try {
    return await api.get(`/topics/${TOPIC}`, { details: true }, { signal: abort });
  } catch (error) {
    if (error instanceof ApiError && error.status === 404) return null;
    throw error;
  }
}

/**
 * The replicas of each partition, with the lengths of their logs.
 * @param {any[]} partitions
 * @param {any} cluster
 */
function replicas(partitions, cluster) {
  if (!partitions.length) return h("p", { class: "muted" }, cluster ? "The topic does not exist yet." : "");
  const longest = Math.max(1, ...partitions.map((each) => each.end ?? 0), ...partitions.flatMap((each) => (each.replica_states ?? []).map((/** @type {any} */ one) => one.log_end ?? 0)));
  return h(
    "div",
    { class: "lab-replicas" },
    partitions.map((each) =>
      h(
        "div",
        { class: "lab-partition" },
        h("h3", null, `Partition ${each.partition}`),
        h("p", { class: "muted small" }, each.leader === null || each.leader < 0 ? "no leader" : `leader ${each.leader}, epoch ${each.leader_epoch}, high watermark ${each.high_watermark ?? "?"}`),
        each.replicas.map((/** @type {number} */ id) => replica(each, id, longest)),
      ),
    ),
  );
}

/**
 * @param {any} partition
 * @param {number} id
 * @param {number} longest
 */
function replica(partition, id, longest) {
  const state = (partition.replica_states ?? []).find((/** @type {any} */ each) => each.broker === id);
  const end = state?.log_end ?? null;
  const isIn = partition.isr.includes(id);
  const part = (/** @type {number} */ n) => `${(100 * n) / longest}%`;
  return h(
    "div",
    { class: "lab-replica" },
    h("span", null, `Broker ${id}`),
    h("div", { class: ["lab-bar", !isIn && "out"] }, h("i", { style: { width: part(end ?? 0) } }), partition.high_watermark ? h("b", { style: { left: part(partition.high_watermark) } }) : null),
    h("span", { class: "mono right" }, end === null ? "?" : count(end)),
    badge(isIn ? (partition.leader === id ? "leader" : "in sync") : "out of sync", isIn ? "ok" : "warn"),
  );
}

/**
 * What changed while the page watched.
 * @param {import("../../lib/signal.js").Computed<import("../../lib/api.js").Polled<Seen>>} seen
 */
function chronicle(seen) {
  const news = signal(/** @type {{at: number, text: string}[]} */ ([]));
  /** @type {Map<number, any> | null} */
  let before = null;
  effect(() => {
    const found = seen.value.value?.topic;
    if (!found) {
      before = null;
      return;
    }
    const now = new Map(found.partitions.map((/** @type {any} */ each) => [each.partition, each]));
    const fresh = before ? [...now].flatMap(([number, each]) => changes(number, before?.get(number), each)) : [];
    before = now;
    if (fresh.length) untracked(() => news.update((all) => [...fresh.map((text) => ({ at: Date.now(), text })), ...all].slice(0, NEWS_MAX)));
  });
  return h("div", { class: "lab-news", aria: { live: "polite" } }, () => (news.value.length ? [h("h3", null, "What happened"), h("ul", null, news.value.map((each) => h("li", null, h("span", { class: "mono muted" }, time(each.at)), " ", each.text)))] : null));
}

/**
 * @param {number} number
 * @param {any} was
 * @param {any} is
 * @returns {string[]}
 */
function changes(number, was, is) {
  if (!was) return [];
  const found = [];
  if (was.leader !== is.leader) found.push(`Partition ${number}: leader ${was.leader} became ${is.leader}, epoch ${is.leader_epoch}.`);
  for (const id of was.isr) if (!is.isr.includes(id)) found.push(`Partition ${number}: broker ${id} left the ISR.`);
  for (const id of is.isr) if (!was.isr.includes(id)) found.push(`Partition ${number}: broker ${id} is in sync again.`);
  return found;
}
