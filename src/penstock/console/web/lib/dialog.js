// Dialogs. Esc and a click beside it close one; while an action runs its buttons are disabled, and an error is shown in it,
// so that nothing typed is lost.

import { h } from "./dom.js";
import { scope, signal } from "./signal.js";
import { rescueToasts } from "./toast.js";

/**
 * @typedef {object} Action
 * @property {string} label
 * @property {"primary" | "danger" | "plain"} [kind]
 * @property {() => any} [run] May be async. The dialog closes afterwards, unless it returns false or throws.
 * @property {() => boolean} [disabled] Reactive.
 */

/**
 * @param {object} options
 * @param {string} options.title
 * @param {Node | string | (() => Node)} options.body
 * @param {Action[]} [options.actions]
 * @param {boolean} [options.wide]
 * @param {() => void} [options.onClose]
 * @returns {() => void} closes it
 */
export function dialog(options) {
  const [close, end] = scope(() => open(options, () => end()));
  return close;
}

/**
 * @param {Parameters<typeof dialog>[0]} options
 * @param {() => void} ended
 */
function open(options, ended) {
  const busy = signal(false);
  const wrong = signal("");
  const before = document.activeElement;
  const actions = options.actions ?? [{ label: "Close", kind: "plain" }];
  const title = h("h2", { id: `dialog-${Math.random().toString(36).slice(2)}` }, options.title);

  /** @param {Action} action */
  async function act(action) {
    if (!action.run) {
      close();
      return;
    }
    busy.set(true);
    wrong.set("");
    try {
      if ((await action.run()) !== false) close();
    } catch (error) {
      wrong.set(error instanceof Error ? error.message : String(error));
    } finally {
      busy.set(false);
    }
  }

  const buttons = actions.map((action) =>
    h(
      "button",
      { type: action.kind === "primary" || action.kind === "danger" ? "submit" : "button", class: action.kind ?? "plain", disabled: () => busy.value || !!action.disabled?.(), on: action.kind === "primary" || action.kind === "danger" ? {} : { click: () => act(action) } },
      action.label,
    ),
  );
  const main = actions.find((each) => each.kind === "primary" || each.kind === "danger");
  const frame = h(
    "form",
    {
      method: "dialog",
      noValidate: true,
      on: {
        submit: (/** @type {SubmitEvent} */ event) => {
          event.preventDefault();
          if (main && !busy.peek() && !main.disabled?.()) act(main);
        },
      },
    },
    h("header", null, title, h("button", { type: "button", class: "icon", aria: { label: "Close" }, on: { click: () => close() } }, "×")),
    h("div", { class: "dialog-body", tabIndex: -1 }, typeof options.body === "function" ? options.body() : options.body),
    h("p", { class: "field-error", role: "alert", hidden: () => !wrong.value }, () => wrong.value),
    h("footer", null, buttons),
  );
  const made = h("dialog", { class: options.wide ? "wide" : null, aria: { labelledby: title.id } }, frame);
  let isPressedBeside = false;
  made.addEventListener("pointerdown", (event) => {
    isPressedBeside = event.target === made;
  });
  made.addEventListener("click", (event) => {
    if (event.target === made && isPressedBeside && !busy.peek()) close();
  });
  made.addEventListener("cancel", (event) => {
    if (busy.peek()) event.preventDefault();
  });
  made.addEventListener("close", finish);
  document.body.append(made);
  made.showModal();
  const find = (/** @type {string} */ selector) => /** @type {HTMLElement | null} */ (frame.querySelector(selector));
  const first = find("[autofocus]") ?? find(".dialog-body input, .dialog-body select, .dialog-body textarea");
  (first ?? buttons[buttons.length - 1])?.focus();

  let isOver = false;
  function finish() {
    if (isOver) return;
    isOver = true;
    rescueToasts();
    made.remove();
    ended();
    options.onClose?.();
    if (before instanceof HTMLElement && before.isConnected) before.focus();
  }
  function close() {
    if (made.open) made.close();
    finish();
  }
  return close;
}

/**
 * Ask before something is destroyed: its name has to be typed.
 * @param {object} options
 * @param {string} options.title
 * @param {string} options.name
 * @param {string | Node} options.text What will happen.
 * @param {() => any} options.action
 * @param {string} [options.label] Of the button.
 */
export function confirmByName({ title, name, text, action, label = "Delete" }) {
  const typed = signal("");
  const input = h("input", { type: "text", autocomplete: "off", spellcheck: false, on: { input: () => typed.set(input.value) } });
  return dialog({
    title,
    body: h("div", { class: "stack" }, typeof text === "string" ? h("p", null, text) : text, h("label", { class: "field" }, h("span", { class: "field-label" }, "Type ", h("code", null, name), " to confirm"), input)),
    actions: [
      { label: "Cancel", kind: "plain" },
      { label, kind: "danger", run: action, disabled: () => typed.value !== name },
    ],
  });
}

/**
 * Ask before something that can be undone.
 * @param {object} options
 * @param {string} options.title
 * @param {string | Node} options.text
 * @param {string} options.label Of the button.
 * @param {() => any} options.action
 * @param {"primary" | "danger"} [options.kind]
 */
export function confirm({ title, text, label, action, kind = "primary" }) {
  return dialog({
    title,
    body: typeof text === "string" ? h("p", null, text) : text,
    actions: [
      { label: "Cancel", kind: "plain" },
      { label, kind, run: action },
    ],
  });
}
