// Writes selected records again, to another topic. The node copies them, so that their bytes stay the same.

import { api } from "../lib/api.js";
import { dialog } from "../lib/dialog.js";
import { h } from "../lib/dom.js";
import { checkbox, field, textInput } from "../lib/form.js";
import { count } from "../lib/format.js";
import { link, path } from "../lib/router.js";
import { signal } from "../lib/signal.js";

/** @typedef {import("./record-table.js").Row} Row */

const PORTION = 200; // records of one call
const LISTED = 8;
const TOPICS_LISTED = 500;

/**
 * @param {string} topic
 * @param {Row[]} rows
 * @param {number[]} _partitions
 */
export function openResend(topic, rows, _partitions) {
  const name = signal("");
  const wrong = signal("");
  const keeps = signal(false);
  const done = signal(/** @type {{copied: number, refused: string[]} | null} */ (null));
  const progress = signal(0);
  const known = h("datalist", { id: "resend-topics" });
  api.get("/topics", { limit: TOPICS_LISTED }).then(
    (found) => known.append(...found.topics.map((/** @type {any} */ each) => h("option", { value: each.name }))),
    () => {}, // names can be typed
  );
  const target = textInput({ value: name, list: "resend-topics" });
  target.setAttribute("list", known.id);
  // In the order in which they were written, as far as that is known.
  const ordered = [...rows].sort((a, b) => a.timestamp - b.timestamp || a.partition - b.partition || a.offset - b.offset);

  async function send() {
    wrong.set("");
    const to = name.peek().trim();
    if (!/^[a-zA-Z0-9._-]{1,249}$/.test(to)) {
      wrong.set("The name of a topic has letters, digits, dots, underscores and hyphens.");
      return false;
    }
    let copied = 0;
    /** @type {string[]} */
    const refused = [];
    progress.set(0);
    for (let at = 0; at < ordered.length; at += PORTION) {
      const records = ordered.slice(at, at + PORTION).map(({ partition, offset }) => ({ partition, offset }));
      const answer = await api.post(path("topics", topic, "records", "copy"), { to, records, keep_timestamps: keeps.peek() });
      copied += answer.copied;
      answer.results.forEach((/** @type {any} */ each, /** @type {number} */ index) => {
        if (each.error) refused.push(`Partition ${records[index].partition}, offset ${count(records[index].offset)}: ${each.error.message}`);
      });
      progress.set(at + records.length);
    }
    done.set({ copied, refused });
    return false;
  }

  const form = h(
    "div",
    { class: "stack" },
    h("p", null, `${count(ordered.length)} ${ordered.length === 1 ? "record" : "records"} of ${topic}, with the same key, value and headers:`),
    h(
      "ul",
      { class: "mono small wrap" },
      ordered.slice(0, LISTED).map((row) => h("li", null, `${row.partition}:${row.offset} `, h("bdi", null, (row.key ?? "no key").slice(0, 60)))),
      ordered.length > LISTED ? h("li", null, `and ${count(ordered.length - LISTED)} more`) : null,
    ),
    field("To topic", target, { error: wrong, hint: "It is created if the cluster creates topics on first use." }),
    known,
    field("Keep timestamps", checkbox({ checked: keeps }), { hint: "Otherwise the time of the copy." }),
    h("p", { class: "muted", role: "status" }, () => (progress.value ? `${count(progress.value)} of ${count(ordered.length)} sent` : "")),
  );
  const close = dialog({
    title: "Send records again",
    wide: true,
    body: h("div", null, () => (done.value ? report(done.value) : form)),
    actions: [
      { label: "Close", kind: "plain" },
      { label: "Send", kind: "primary", run: send, disabled: () => done.value !== null || !name.value.trim() },
    ],
  });

  /** @param {{copied: number, refused: string[]}} result */
  function report({ copied, refused }) {
    const to = name.peek().trim();
    return h(
      "div",
      { class: "stack", role: "status" },
      h("p", null, `${count(copied)} of ${count(ordered.length)} records were written to `, link(path("topics", to, "messages"), { on: { click: () => close() } }, to), "."),
      refused.length ? h("ul", { class: "field-error" }, refused.slice(0, 20).map((each) => h("li", null, each)), refused.length > 20 ? h("li", null, `and ${count(refused.length - 20)} more`) : null) : null,
    );
  }
}
