// Elements made by functions. Text is always text: nothing here parses HTML.
//
//     h("button", {class: "primary", on: {click: save}, disabled: () => busy.value}, "Save")
//
// A property or a child that is a function is reactive: it is evaluated again when a signal that it reads changes.

import { effect } from "./signal.js";

/** @typedef {Node | string | number | bigint | boolean | null | undefined} Simple */
/** @typedef {Simple | any[] | (() => any)} Child An array of children, or a function that returns one. */

const SVG = "http://www.w3.org/2000/svg";

/**
 * An element. Properties: `class`, `on` (listeners), `data`, `aria`, `style` (an object), and any property or attribute.
 * @template {string} K
 * @param {K} tag
 * @param {Record<string, any> | null} [props]
 * @param {...Child} children
 * @returns {K extends keyof HTMLElementTagNameMap ? HTMLElementTagNameMap[K] : HTMLElement}
 */
export function h(tag, props, ...children) {
  const element = document.createElement(tag);
  append(element, children);
  if (props) for (const [name, value] of Object.entries(props)) apply(element, name, value);
  return /** @type {any} */ (element);
}

/**
 * @param {string} tag
 * @param {Record<string, any> | null} [attributes]
 * @param {...Child} children
 * @returns {SVGElement}
 */
export function svg(tag, attributes, ...children) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (name === "on") listen(element, value);
    else if (name === "aria") for (const [key, each] of Object.entries(value)) attribute(element, `aria-${key}`, each);
    else attribute(element, name, value);
  }
  append(element, children);
  return element;
}

/**
 * @param {unknown} value
 * @returns {Text}
 */
export function text(value) {
  return document.createTextNode(String(value));
}

/**
 * Replace the content of an element.
 * @param {Element} parent
 * @param {Child} node
 */
export function mount(parent, node) {
  clear(parent);
  append(parent, [node]);
}

/** @param {Element} element */
export function clear(element) {
  element.replaceChildren();
}

/**
 * @param {HTMLElement} element
 * @param {string} name
 * @param {any} value
 */
function apply(element, name, value) {
  if (name === "on") listen(element, value);
  else if (name === "data") for (const [key, each] of Object.entries(value)) data(element, key, each);
  else if (name === "aria") for (const [key, each] of Object.entries(value)) attribute(element, `aria-${key}`, each);
  else if (name === "style") for (const [key, each] of Object.entries(value)) style(element, key, each);
  else if (typeof value === "function") effect(() => assign(element, name, value()));
  else assign(element, name, value);
}

/**
 * @param {Element} element
 * @param {Record<string, any>} listeners
 */
function listen(element, listeners) {
  for (const [name, each] of Object.entries(listeners)) if (each) element.addEventListener(name, each);
}

/**
 * @param {HTMLElement} element
 * @param {string} key
 * @param {any} value
 */
function data(element, key, value) {
  reactive(value, (found) => {
    if (found === null || found === undefined || found === false) delete element.dataset[key];
    else element.dataset[key] = String(found);
  });
}

/**
 * @param {Element} element
 * @param {string} name
 * @param {any} value
 */
function attribute(element, name, value) {
  reactive(value, (found) => {
    if (found === null || found === undefined) element.removeAttribute(name);
    else element.setAttribute(name, String(found));
  });
}

/**
 * Through the object model, which the content security policy allows; custom properties too.
 * @param {HTMLElement} element
 * @param {string} name
 * @param {any} value
 */
function style(element, name, value) {
  reactive(value, (found) => element.style.setProperty(name, found === null || found === undefined ? "" : String(found)));
}

/**
 * @param {any} value
 * @param {(value: any) => void} set
 */
function reactive(value, set) {
  if (typeof value === "function") effect(() => set(value()));
  else set(value);
}

/**
 * @param {HTMLElement} element
 * @param {string} name
 * @param {any} value
 */
function assign(element, name, value) {
  if (name === "class") {
    const found = Array.isArray(value) ? value.filter(Boolean).join(" ") : value;
    if (found) element.className = String(found);
    else element.removeAttribute("class");
  } else if (name === "for") {
    element.setAttribute("for", String(value));
  } else if (name in element && name !== "list" && name !== "form") {
    /** @type {any} */ (element)[name] = value ?? "";
    if (value === null || value === undefined) element.removeAttribute(name);
  } else if (value === null || value === undefined || value === false) {
    element.removeAttribute(name);
  } else {
    element.setAttribute(name, value === true ? "" : String(value));
  }
}

/**
 * @param {Element | DocumentFragment} parent
 * @param {Child[]} children
 */
export function append(parent, children) {
  for (const child of children) {
    if (child === null || child === undefined || typeof child === "boolean") continue;
    if (Array.isArray(child)) append(parent, child);
    else if (typeof child === "function") appendReactive(parent, child);
    else parent.append(child instanceof Node ? child : String(child));
  }
}

/**
 * The result of a function between two empty texts, which stay.
 * @param {Element | DocumentFragment} parent
 * @param {() => Child} render
 */
function appendReactive(parent, render) {
  const first = document.createTextNode("");
  const last = document.createTextNode("");
  parent.append(first, last);
  effect(() => {
    const fresh = document.createDocumentFragment();
    append(fresh, [render()]);
    while (first.nextSibling && first.nextSibling !== last) first.nextSibling.remove();
    last.before(fresh);
  });
}
