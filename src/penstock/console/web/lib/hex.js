// Bytes as offsets, hexadecimal digits and characters. Only the lines in view are in the document.

import { h } from "./dom.js";
import { onDispose } from "./signal.js";

const LINE = 16; // bytes
const LINE_PX = 18;
const SPARE_LINES = 10;
const LINES_MAX = 24; // in view

/**
 * @param {Uint8Array | ArrayBuffer} data
 * @returns {HTMLElement}
 */
export function hexView(data) {
  const bytes = data instanceof Uint8Array ? data : new Uint8Array(data);
  const lines = Math.ceil(bytes.length / LINE);
  if (!lines) return h("div", { class: "hex" }, h("p", { class: "muted" }, "No bytes."));
  const shown = h("pre");
  const room = h("div", { class: "hex-room", style: { height: `${lines * LINE_PX}px` } }, shown);
  const view = h(
    "div",
    { class: "hex", tabIndex: 0, role: "region", aria: { label: `${bytes.length} bytes in hexadecimal` }, style: { height: `${Math.min(lines, LINES_MAX) * LINE_PX + 16}px` } },
    room,
  );
  let drawn = -1;
  const draw = () => {
    const first = Math.max(0, Math.floor(view.scrollTop / LINE_PX) - SPARE_LINES);
    if (first === drawn) return;
    drawn = first;
    const end = Math.min(lines, first + LINES_MAX + 2 * SPARE_LINES + 2);
    const texts = [];
    for (let at = first; at < end; at++) texts.push(line(bytes, at * LINE));
    shown.textContent = texts.join("\n");
    shown.style.setProperty("top", `${first * LINE_PX}px`);
  };
  let frame = 0;
  view.addEventListener("scroll", () => {
    cancelAnimationFrame(frame);
    frame = requestAnimationFrame(draw);
  });
  onDispose(() => cancelAnimationFrame(frame));
  draw();
  return view;
}

/**
 * @param {Uint8Array} bytes
 * @param {number} at
 */
export function line(bytes, at) {
  const part = bytes.subarray(at, at + LINE);
  let digits = "";
  let letters = "";
  part.forEach((byte, index) => {
    digits += (index === LINE / 2 ? "  " : index ? " " : "") + byte.toString(16).padStart(2, "0");
    letters += byte >= 0x20 && byte < 0x7f ? String.fromCharCode(byte) : ".";
  });
  return `${at.toString(16).padStart(8, "0")}  ${digits.padEnd(LINE * 3)}  ${letters}`;
}
