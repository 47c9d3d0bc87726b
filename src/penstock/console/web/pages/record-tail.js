// Records as they are written. The node sends about `RATE_MAX` a second, always the newest, and counts the rest; the list
// is drawn a few times a second and keeps the last `ROWS_MAX`. So a topic with 10,000 records a second is no more work
// than one with a hundred, and the rate shown is the true one.

import { api } from "../lib/api.js";
import { path } from "../lib/router.js";
import { onDispose, signal } from "../lib/signal.js";
import { FIELD_BYTES, recordRow } from "./record-table.js";

const RATE_MAX = 400;
const ROWS_MAX = 1000;
const DRAW_MS = 250;
const RATE_MS = 4000; // the time over which the rate is taken

/**
 * @param {string} topic
 * @param {string | undefined} partition
 * @param {import("../lib/signal.js").Signal<import("./record-table.js").Row[]>} rows
 */
export function startTail(topic, partition, rows) {
  const state = signal({ isPaused: false, rate: 0, notShown: 0, waiting: 0, problem: "" });
  /** @type {any[]} what has come and is not drawn, newest last */
  let pending = [];
  let seen = 0;
  let notShown = 0;
  let problem = "";
  /** @type {[number, number][]} times, and how many records had been counted then */
  let marks = [[performance.now(), 0]];

  const close = api.events(path("topics", topic, "tail"), { partition, decode: "base64", max_field_bytes: FIELD_BYTES, max_rate: RATE_MAX }, {
    onEvent: ({ event, data }) => {
      if (event === "skipped") {
        seen += data.offsets;
        notShown += data.offsets;
      } else if (event === "end") {
        problem = `The stream has ended: ${data.reason}.`;
      } else {
        seen += 1;
        pending.push(data);
        if (pending.length > ROWS_MAX) {
          notShown += pending.length - ROWS_MAX;
          pending = pending.slice(-ROWS_MAX);
        }
      }
    },
    onOpen: () => (problem = ""),
    onError: (error) => (problem = error.message),
  });

  const draw = () => {
    const now = performance.now();
    marks = [...marks.filter(([at]) => now - at < RATE_MS), [now, seen]];
    const [first, before] = marks[0];
    const rate = now - first > 500 ? ((seen - before) * 1000) / (now - first) : 0;
    const { isPaused } = state.peek();
    if (!isPaused && pending.length) {
      const fresh = pending.reverse().map(recordRow).sort((a, b) => b.timestamp - a.timestamp);
      pending = [];
      rows.set([...fresh, ...rows.peek()].slice(0, ROWS_MAX));
    }
    const next = { isPaused, rate, notShown, waiting: pending.length, problem };
    const last = state.peek();
    if (Object.entries(next).some(([name, value]) => /** @type {any} */ (last)[name] !== value)) state.set(next);
  };
  const timer = setInterval(draw, DRAW_MS);
  const stop = () => {
    clearInterval(timer);
    close();
  };
  onDispose(stop);
  return {
    state,
    stop,
    pause: () => state.update((now) => ({ ...now, isPaused: true })),
    resume: () => {
      state.update((now) => ({ ...now, isPaused: false }));
      draw();
    },
  };
}
