// A table of any length: only the rows in view are in the document. Sorts, filters, selects; arrow keys move, Enter opens.
//
// All rows have one height. Two empty rows stand for those above and below the view. A table that would be higher than
// browsers allow is scrolled in proportion.

import { append, clear, h } from "./dom.js";
import { effect, onDispose, read, scope, signal } from "./signal.js";

/**
 * @template R
 * @typedef {object} Column
 * @property {string} key
 * @property {string} title
 * @property {(row: R) => any} value What rows are sorted and filtered by.
 * @property {(row: R) => import("./dom.js").Child} [cell] What is shown; the value by default.
 * @property {"right" | "left" | "center"} [align]
 * @property {number | string} [width] In pixels, or as CSS has it.
 * @property {boolean} [sort] False: cannot be sorted by.
 * @property {(row: R) => string} [hint] The cell's title; its text by default.
 * @property {string} [about] Title of the column's head.
 * @property {boolean} [mono] Offsets, keys and bytes.
 */

/**
 * @template R
 * @typedef {object} TableOptions
 * @property {Column<R>[]} columns
 * @property {R[] | import("./signal.js").Signal<R[]> | import("./signal.js").Computed<R[]>} rows
 * @property {(row: R) => string} key
 * @property {Node | string} [empty]
 * @property {(row: R) => void} [onOpen]
 * @property {{key: string, desc?: boolean}} [sort]
 * @property {import("./signal.js").Signal<string> | import("./signal.js").Computed<string>} [filter]
 * @property {import("./signal.js").Signal<Set<string>>} [selectable]
 * @property {(row: R) => string | null | undefined} [rowClass]
 * @property {string} [label] For screen readers.
 * @property {string} [height] The greatest height, in CSS; by default what the window leaves.
 */

export const ROW_PX = 33;
const SPARE_ROWS = 8; // rows made above and below the view
const HEIGHT_PX_MAX = 12_000_000; // less than any browser's limit
const FREE_PX = 130; // room of a column without a width
const HEIGHT_PX_MIN = 320;
const MARGIN_PX = 32; // below the table

/** The element; `table()` makes and fills it. */
export class TableElement extends HTMLElement {
  /** @type {() => void} */
  draw = () => {};
}
customElements.define("p-table", TableElement);

/**
 * @template R
 * @param {TableOptions<R>} options
 * @returns {HTMLElement}
 */
export function table(options) {
  const { columns, key, selectable } = options;
  const order = signal(options.sort ? { key: options.sort.key, desc: !!options.sort.desc } : null);
  /** @type {R[]} */
  let rows = [];
  /** @type {string | null} */
  let active = null; // the key of the row that Tab leads to
  /** @type {Map<string, HTMLTableRowElement>} */
  let shown = new Map();
  let isAsked = false;
  /** @type {WeakMap<HTMLTableRowElement, R>} */
  const held = new WeakMap();
  /** @type {WeakMap<HTMLTableRowElement, () => void>} */
  const ends = new WeakMap(); // ends the effects of a row's cells

  const body = h("tbody");
  const widths = columns.map((each) => (typeof each.width === "number" ? `${each.width}px` : (each.width ?? "")));
  const least = columns.reduce((sum, each) => sum + (typeof each.width === "number" ? each.width : FREE_PX), selectable ? 40 : 0);
  const head = h("tr", { role: "row" }, selectable ? h("th", { class: "select", scope: "col" }, selectAll()) : null, columns.map(headCell));
  const grid = h(
    "table",
    { role: "grid", aria: { label: options.label ?? null }, style: { "min-width": `${least}px` } },
    h("colgroup", null, selectable ? h("col", { style: { width: "40px" } }) : null, widths.map((width) => h("col", { style: { width } }))),
    h("thead", null, head),
    body,
  );
  const empty = h("div", { class: "table-empty", hidden: true }, options.empty ?? "Nothing here.");
  const scroller = h("div", { class: "table-scroll", on: { scroll: ask } }, grid);
  const host = /** @type {TableElement} */ (h("p-table", { on: { keydown: keyPressed } }, scroller, empty));
  host.draw = draw;

  /** @param {Column<R>} column */
  function headCell(column) {
    const isSorted = () => order.value?.key === column.key;
    const sortBy = () => {
      const now = order.peek();
      const known = rows.find((row) => (column.value(row) ?? null) !== null);
      const isNumber = known !== undefined && typeof column.value(known) === "number";
      order.set(now?.key === column.key ? { key: column.key, desc: !now.desc } : { key: column.key, desc: isNumber });
    };
    return h(
      "th",
      {
        scope: "col",
        class: column.align ?? null,
        title: column.about ?? null,
        aria: { sort: () => (isSorted() ? (order.value?.desc ? "descending" : "ascending") : null) },
      },
      column.sort === false || !column.title
        ? h("span", { class: "head" }, column.title)
        : h("button", { type: "button", class: "head", on: { click: sortBy } }, column.title, h("span", { class: "arrow", aria: { hidden: "true" } }, () => (isSorted() ? (order.value?.desc ? "↓" : "↑") : ""))),
    );
  }

  function selectAll() {
    const chosen = /** @type {import("./signal.js").Signal<Set<string>>} */ (selectable);
    return h("input", {
      type: "checkbox",
      aria: { label: "Select all" },
      on: { change: (/** @type {any} */ event) => chosen.set(event.target.checked ? new Set(rows.map(key)) : new Set()) },
      checked: () => chosen.value.size > 0 && chosen.value.size >= rows.length,
      indeterminate: () => chosen.value.size > 0 && chosen.value.size < rows.length,
    });
  }

  function ask() {
    if (isAsked) return;
    isAsked = true;
    requestAnimationFrame(() => {
      isAsked = false;
      draw();
    });
  }

  /** Rows that are wholly in view, below the head. */
  function wholeRows() {
    return Math.max(1, Math.floor((scroller.clientHeight - ROW_PX) / ROW_PX));
  }

  /** Which rows are in view: the first, the end, and the room above the first. */
  function view() {
    const height = scroller.clientHeight || 600;
    const whole = rows.length * ROW_PX;
    const count = Math.ceil(height / ROW_PX);
    if (whole <= HEIGHT_PX_MAX) {
      // After a filter, the view may still be where there are no rows any more.
      const top = Math.min(scroller.scrollTop, Math.max(0, whole - height));
      const first = Math.max(0, Math.floor(top / ROW_PX) - SPARE_ROWS);
      return { first, end: Math.min(rows.length, first + count + 2 * SPARE_ROWS), above: first * ROW_PX, whole };
    }
    const full = wholeRows();
    const part = Math.min(1, scroller.scrollTop / Math.max(1, HEIGHT_PX_MAX + ROW_PX - height));
    const first = Math.round(part * (rows.length - full));
    const end = Math.min(rows.length, first + count);
    return { first, end, above: Math.min(scroller.scrollTop, HEIGHT_PX_MAX - (end - first) * ROW_PX), whole: HEIGHT_PX_MAX };
  }

  function draw() {
    const { first, end, above, whole } = view();
    const focus = focused();
    /** @type {Map<string, HTMLTableRowElement>} */
    const next = new Map();
    const made = [];
    for (let at = first; at < end; at++) {
      const id = key(rows[at]);
      const row = shown.get(id) ?? h("tr", { data: { key: id }, on: { click: clicked, focus: () => choose(id) } });
      if (held.get(row) !== rows[at]) {
        ends.get(row)?.();
        ends.set(row, scope(() => fill(row, rows[at], id))[1]);
      }
      row.setAttribute("aria-rowindex", String(at + 2));
      next.set(id, row);
      made.push(row);
    }
    for (const [id, row] of shown) if (!next.has(id)) ends.get(row)?.();
    shown = next;
    if (active === null || !rows.some((row) => key(row) === active)) active = rows.length ? key(rows[0]) : null;
    for (const [id, row] of shown) row.tabIndex = id === active ? 0 : -1;
    if (active !== null && !shown.has(active) && made.length) made[0].tabIndex = 0;
    const below = Math.max(0, whole - above - made.length * ROW_PX);
    const wanted = [...(above ? [spacer(above)] : []), ...made, ...(below ? [spacer(below)] : [])];
    if (wanted.length !== body.children.length || wanted.some((each, at) => each !== body.children[at])) body.replaceChildren(...wanted);
    grid.setAttribute("aria-rowcount", String(rows.length + 1));
    if (focus) restore(focus);
  }

  /**
   * @param {HTMLTableRowElement} row
   * @param {R} of
   * @param {string} id
   */
  function fill(row, of, id) {
    const isNew = row.children.length === 0;
    held.set(row, of);
    row.className = [options.onOpen ? "opens" : "", options.rowClass?.(of) ?? ""].filter(Boolean).join(" ");
    if (isNew && selectable) row.append(h("td", { class: "select" }, choice(id)));
    for (const [at, column] of columns.entries()) {
      const found = column.cell ? column.cell(of) : column.value(of);
      const cell = isNew ? row.appendChild(h("td", { class: [column.align, column.mono && "mono"] })) : row.children[at + (selectable ? 1 : 0)];
      const plain = typeof found === "string" || typeof found === "number" ? String(found) : null;
      if (plain !== null && cell.childElementCount === 0 && cell.textContent === plain) continue;
      clear(cell);
      append(cell, [found ?? ""]);
      if (column.hint) cell.setAttribute("title", column.hint(of));
      else if (plain !== null && plain.length > 12) cell.setAttribute("title", plain);
    }
  }

  /** @param {string} id */
  function choice(id) {
    const chosen = /** @type {import("./signal.js").Signal<Set<string>>} */ (selectable);
    const box = h("input", { type: "checkbox", tabIndex: -1, aria: { label: `Select ${id}` } });
    box.addEventListener("change", () => toggle(id));
    box.checked = chosen.peek().has(id);
    return box;
  }

  /** @param {string} id */
  function toggle(id) {
    selectable?.update((now) => {
      const next = new Set(now);
      if (!next.delete(id)) next.add(id);
      return next;
    });
  }

  /** @param {string} id */
  function choose(id) {
    if (active === id) return;
    const before = active === null ? undefined : shown.get(active);
    if (before) before.tabIndex = -1;
    active = id;
    const now = shown.get(id);
    if (now) now.tabIndex = 0;
  }

  /** @param {MouseEvent} event */
  function clicked(event) {
    const row = /** @type {HTMLTableRowElement} */ (event.currentTarget);
    const target = /** @type {Element} */ (event.target);
    const of = held.get(row);
    if (!options.onOpen || of === undefined || target.closest("a, button, input, select, label, textarea, summary")) return;
    if (window.getSelection()?.toString()) return;
    options.onOpen(of);
  }

  /** @param {KeyboardEvent} event */
  function keyPressed(event) {
    const row = document.activeElement;
    if (!(row instanceof HTMLTableRowElement) || !body.contains(row)) return;
    const at = rows.findIndex((each) => key(each) === row.dataset.key);
    const page = Math.max(1, Math.floor(scroller.clientHeight / ROW_PX) - 2);
    /** @type {Record<string, number>} */
    const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -rows.length, End: rows.length };
    if (event.key in steps) {
      event.preventDefault();
      go(Math.min(rows.length - 1, Math.max(0, at + steps[event.key])));
    } else if (event.key === "Enter" && options.onOpen && at >= 0) {
      event.preventDefault();
      options.onOpen(rows[at]);
    } else if (event.key === " " && selectable && at >= 0) {
      event.preventDefault();
      toggle(key(rows[at]));
    }
  }

  /** @param {number} at */
  function go(at) {
    if (rows.length === 0) return;
    const whole = rows.length * ROW_PX;
    const room = scroller.clientHeight - 2 * ROW_PX;
    if (whole <= HEIGHT_PX_MAX) {
      if (at * ROW_PX < scroller.scrollTop) scroller.scrollTop = at * ROW_PX;
      else if (at * ROW_PX > scroller.scrollTop + room) scroller.scrollTop = at * ROW_PX - room;
    } else if (!shown.has(key(rows[at]))) {
      const last = rows.length - wholeRows();
      const from = at < view().first ? at : at - wholeRows() + 1;
      scroller.scrollTop = (Math.max(0, Math.min(from, last)) / last) * (HEIGHT_PX_MAX + ROW_PX - scroller.clientHeight);
    }
    choose(key(rows[at]));
    draw();
    shown.get(key(rows[at]))?.focus({ preventScroll: true });
  }

  function focused() {
    const now = document.activeElement;
    if (!now || !body.contains(now)) return null;
    const row = /** @type {HTMLElement} */ (now.closest("tr"));
    const cell = now.closest("td");
    return { id: row.dataset.key ?? "", column: cell ? [...row.children].indexOf(cell) : -1, element: now };
  }

  /** @param {{id: string, column: number, element: Element}} focus */
  function restore(focus) {
    if (focus.element === document.activeElement) return;
    const row = shown.get(focus.id);
    if (!row) return;
    const cell = row.children[focus.column];
    const inner = /** @type {HTMLElement | null | undefined} */ (cell?.querySelector("a, button, input, select"));
    (inner ?? row).focus({ preventScroll: true });
  }

  effect(() => {
    const all = read(/** @type {any} */ (options.rows)) ?? [];
    rows = sorted(filtered(all, columns, options.filter?.value ?? ""), columns, order.value);
    empty.hidden = rows.length > 0;
    scroller.classList.toggle("is-empty", rows.length === 0);
    draw();
  });
  if (selectable) {
    effect(() => {
      const chosen = selectable.value;
      for (const [id, row] of shown) {
        const box = row.querySelector("input");
        if (box) box.checked = chosen.has(id);
        row.setAttribute("aria-selected", String(chosen.has(id)));
      }
    });
  }
  const observer = new ResizeObserver(() => {
    scroller.style.maxHeight = options.height ?? roomBelow(host);
    ask();
  });
  observer.observe(scroller);
  onDispose(() => {
    observer.disconnect();
    for (const row of shown.values()) ends.get(row)?.();
  });
  return host;
}

/**
 * What the window leaves below the top of a table, so that the page itself need not scroll; not too little.
 * @param {HTMLElement} host
 */
function roomBelow(host) {
  const main = host.closest("main");
  if (!main) return "";
  const top = host.getBoundingClientRect().top - main.getBoundingClientRect().top + main.scrollTop;
  return `${Math.max(HEIGHT_PX_MIN, Math.floor(main.clientHeight - top - MARGIN_PX))}px`;
}

/** @param {number} height */
function spacer(height) {
  return h("tr", { class: "spacer", aria: { hidden: "true" }, style: { height: `${height}px` } });
}

/**
 * @template R
 * @param {R[]} rows
 * @param {Column<R>[]} columns
 * @param {string} wanted
 * @returns {R[]}
 */
function filtered(rows, columns, wanted) {
  const words = wanted.toLowerCase().split(/\s+/).filter(Boolean);
  if (!words.length) return rows;
  return rows.filter((row) => {
    const text = columns.map((each) => each.value(row)).join("\n").toLowerCase();
    return words.every((word) => text.includes(word));
  });
}

/**
 * @template R
 * @param {R[]} rows
 * @param {Column<R>[]} columns
 * @param {{key: string, desc: boolean} | null} order
 * @returns {R[]}
 */
function sorted(rows, columns, order) {
  const column = columns.find((each) => each.key === order?.key);
  if (!order || !column) return rows;
  const sign = order.desc ? -1 : 1;
  const pairs = rows.map((row) => /** @type {[any, R]} */ ([column.value(row), row]));
  pairs.sort(([a], [b]) => compare(a, b, sign));
  return pairs.map(([, row]) => row);
}

const collator = new Intl.Collator("en", { numeric: true });

/** What is not known comes last, whichever way. @param {any} a @param {any} b @param {number} sign */
function compare(a, b, sign) {
  const noA = a === null || a === undefined;
  const noB = b === null || b === undefined;
  if (noA || noB) return Number(noA) - Number(noB);
  if (typeof a === "string" && typeof b === "string") return sign * collator.compare(a, b);
  return a < b ? -sign : a > b ? sign : 0;
}
