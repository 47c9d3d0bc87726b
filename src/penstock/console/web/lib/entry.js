// An entry of a form: a field with its value, what is wrong with it, and its name in the body that is sent.
//
//     const name = entry("Name", { name: "user", check: required("Enter a name.") });
//     dialog({ body: h("div", null, name.node), actions: [{ label: "Add", kind: "primary", run: () => sent([name], () => api.post(...)) }] });
//
// What is wrong is shown beside the field, whether it is found here or by the node.

import { ApiError } from "./api.js";
import { checkbox, field, numberInput, select, textInput } from "./form.js";
import { signal } from "./signal.js";

/**
 * @typedef {object} Entry
 * @property {HTMLElement} node
 * @property {import("./signal.js").Signal<string>} value
 * @property {import("./signal.js").Signal<string>} error
 * @property {string} name
 * @property {() => boolean} isRight Checks it, and shows what is wrong.
 * @property {() => void} focus
 */

/**
 * @param {string} label
 * @param {object} options
 * @param {string} options.name Of the field in the body.
 * @param {string} [options.value]
 * @param {(string | [string, string])[]} [options.options] Choices, for a list.
 * @param {"text" | "number" | "password"} [options.type]
 * @param {string} [options.hint]
 * @param {string} [options.placeholder]
 * @param {(text: string) => string} [options.check] What is wrong with it; empty for nothing.
 * @param {Record<string, any>} [options.props] Of the input.
 * @returns {Entry}
 */
export function entry(label, options) {
  const value = signal(options.value ?? "");
  const error = signal("");
  const props = { value, placeholder: options.placeholder ?? null, onInput: () => error.set(""), ...options.props };
  const kind = options.type ?? "text";
  const input = options.options ? select(options.options, props) : kind === "number" ? numberInput(props) : textInput({ type: kind, ...props });
  if (kind === "password") input.setAttribute("autocomplete", "new-password");
  const isRight = () => {
    error.set(options.check?.(value.peek()) ?? "");
    return !error.peek();
  };
  return { node: field(label, input, { hint: options.hint, error }), value, error, name: options.name, isRight, focus: () => input.focus() };
}

/**
 * A box with its value.
 * @param {string} label
 * @param {string} [hint]
 */
export function choice(label, hint) {
  const checked = signal(false);
  return { node: field(label, checkbox({ checked }), { hint }), checked };
}

/**
 * A check for text that must be there.
 * @param {string} message
 * @returns {(text: string) => string}
 */
export const required = (message) => (text) => (text.trim() ? "" : message);

/**
 * A check for a whole number, or nothing if it may be left out.
 * @param {number} low
 * @param {number} high
 * @param {{optional?: boolean}} [how]
 * @returns {(text: string) => string}
 */
export const wholeNumber =
  (low, high, how = {}) =>
  (text) => {
    if (!text.trim()) return how.optional ? "" : `Enter a number from ${low.toLocaleString("en-US")} to ${high.toLocaleString("en-US")}.`;
    const number = Number(text);
    return Number.isInteger(number) && number >= low && number <= high ? "" : `Expected a whole number from ${low.toLocaleString("en-US")} to ${high.toLocaleString("en-US")}.`;
  };

/**
 * Check all entries; the first that is wrong gets the focus.
 * @param {Entry[]} entries
 */
export function areRight(entries) {
  const wrong = entries.filter((each) => !each.isRight());
  wrong[0]?.focus();
  return wrong.length === 0;
}

/**
 * Send what was entered, for the action of a dialog. An error about a field is shown beside it; others are thrown.
 * @param {Entry[]} entries
 * @param {() => Promise<any>} send
 * @returns {Promise<any>} false if something is wrong
 */
export async function sent(entries, send) {
  if (!areRight(entries)) return false;
  try {
    return await send();
  } catch (error) {
    const wrong = error instanceof ApiError ? entries.find((each) => concerns(error, each)) : undefined;
    if (!(error instanceof ApiError) || !wrong) throw error;
    wrong.error.set(error.message);
    wrong.focus();
    return false;
  }
}

/** Errors about a body name the place: "... - at `$.acls[0].principal`". @param {ApiError} error @param {Entry} each */
function concerns(error, each) {
  return new RegExp("`\\$[^`]*\\." + each.name.replace(/[.*+?^${}()|[\]\\]/g, "\\$&") + "`").test(error.message);
}
