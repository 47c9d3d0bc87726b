// Inputs with a label, a hint and an error; and forms that keep what was typed when the API refuses it.

import { h } from "./dom.js";
import { read, signal, untracked } from "./signal.js";

/** @typedef {HTMLInputElement | HTMLSelectElement | HTMLTextAreaElement} Input */

let fields = 0;

/**
 * @param {string} label
 * @param {Input | HTMLElement} input
 * @param {{hint?: string | Node, error?: import("./signal.js").Signal<string> | import("./signal.js").Computed<string>}} [more]
 * @returns {HTMLElement}
 */
export function field(label, input, more = {}) {
  const id = input.id || `field-${++fields}`;
  input.id = id;
  const { hint, error } = more;
  const described = [hint ? `${id}-hint` : "", error ? `${id}-error` : ""].filter(Boolean).join(" ");
  if (described) input.setAttribute("aria-describedby", described);
  const isBox = input instanceof HTMLInputElement && input.type === "checkbox";
  const name = h("label", { class: "field-label", for: id }, label);
  return h(
    "div",
    { class: ["field", isBox && "field-box"], data: { invalid: error ? () => (error.value ? "true" : null) : null } },
    isBox ? [input, name] : [name, input],
    hint ? h("p", { class: "field-hint", id: `${id}-hint` }, hint) : null,
    error ? h("p", { class: "field-error", id: `${id}-error`, hidden: () => !error.value }, () => error.value) : null,
  );
}

/**
 * @param {Record<string, any>} props `value` may be a signal, which follows what is typed; `onInput` is called with the text.
 * @param {string} tag
 * @returns {any}
 */
function input(props, tag) {
  const { value, onInput, ...rest } = props;
  const made = /** @type {HTMLInputElement} */ (h(tag, rest));
  bind(made, value, onInput);
  return made;
}

/**
 * @param {HTMLInputElement | HTMLSelectElement | HTMLTextAreaElement} made
 * @param {any} value
 * @param {((text: string) => void) | undefined} onInput
 */
function bind(made, value, onInput) {
  if (value !== undefined && value !== null) made.value = String(untracked(() => read(value)) ?? ""); // typing must not make the field anew
  const writable = value && typeof value.set === "function" ? value : null;
  made.addEventListener("input", () => {
    writable?.set(made.value);
    onInput?.(made.value);
  });
}

/** @param {Record<string, any>} [props] @returns {HTMLInputElement} */
export function textInput(props = {}) {
  return input({ type: "text", autocomplete: "off", spellcheck: false, ...props }, "input");
}

/** @param {Record<string, any>} [props] @returns {HTMLInputElement} */
export function numberInput(props = {}) {
  return input({ type: "number", inputMode: "numeric", ...props }, "input");
}

/** @param {Record<string, any>} [props] @returns {HTMLTextAreaElement} */
export function textArea(props = {}) {
  return input({ rows: 4, spellcheck: false, ...props }, "textarea");
}

/**
 * A field that filters the page: `/` leads to it.
 * @param {import("./signal.js").Signal<string>} value
 * @param {Record<string, any>} [props]
 * @returns {HTMLInputElement}
 */
export function filterInput(value, props = {}) {
  return input({ type: "search", class: "filter", placeholder: "Filter", autocomplete: "off", spellcheck: false, value, data: { filter: "true" }, aria: { label: "Filter", keyshortcuts: "/" }, ...props }, "input");
}

/**
 * @param {(string | [string, string])[]} options values, or values with labels
 * @param {Record<string, any>} [props]
 * @returns {HTMLSelectElement}
 */
export function select(options, props = {}) {
  const { value, onInput, ...rest } = props;
  const made = h(
    "select",
    rest,
    options.map((each) => (typeof each === "string" ? h("option", { value: each }, each) : h("option", { value: each[0] }, each[1]))),
  );
  bind(made, value, onInput);
  return made;
}

/** @param {Record<string, any>} [props] `checked` may be a signal @returns {HTMLInputElement} */
export function checkbox(props = {}) {
  const { checked, onInput, ...rest } = props;
  const made = h("input", { type: "checkbox", ...rest });
  made.checked = !!untracked(() => read(checked ?? false));
  made.addEventListener("change", () => {
    if (checked && typeof checked.set === "function") checked.set(made.checked);
    onInput?.(made.checked);
  });
  return made;
}

/** @param {string} label @param {Record<string, any>} [props] @returns {HTMLButtonElement} */
export function submit(label, props = {}) {
  return h("button", { type: "submit", class: "primary", ...props }, label);
}

/**
 * A form. While `onSubmit` runs it cannot be sent again; what it throws is shown, and what was typed stays.
 * @param {object} options
 * @param {import("./dom.js").Child} options.fields
 * @param {() => any} options.onSubmit
 * @param {string} [options.label] Of the button.
 * @param {import("./dom.js").Child} [options.actions] Further buttons.
 * @returns {HTMLFormElement}
 */
export function form({ fields: inside, onSubmit, label = "Save", actions }) {
  const busy = signal(false);
  const wrong = signal("");
  return h(
    "form",
    {
      class: "stack",
      noValidate: true,
      on: {
        submit: async (/** @type {SubmitEvent} */ event) => {
          event.preventDefault();
          if (busy.peek()) return;
          busy.set(true);
          wrong.set("");
          try {
            await onSubmit();
          } catch (error) {
            wrong.set(error instanceof Error ? error.message : String(error));
          } finally {
            busy.set(false);
          }
        },
      },
    },
    inside,
    h("p", { class: "field-error", role: "alert", hidden: () => !wrong.value }, () => wrong.value),
    h("div", { class: "row" }, submit(label, { disabled: () => busy.value }), actions),
  );
}
