// Parses JSON without rounding numbers, without recursion, and in slices, so that 10 MB or 100,000 brackets neither
// freeze the page nor end in an error.
//
//     await parseExact('{"id": 9007199254740993}')      // {id: 9007199254740993n}
//
// A number that JavaScript cannot hold as it is written becomes a bigint, or an `ExactNumber` with its digits.

const SLICE_MS = 12;
const STEPS_A_CHECK = 2000; // values between two looks at the clock

/** A number as it is written. */
export class ExactNumber {
  /** @param {string} text */
  constructor(text) {
    this.text = text;
  }

  toString() {
    return this.text;
  }
}

/** Says where the text is not JSON. */
export class NotJson extends Error {
  /** @param {string} expected @param {number} at */
  constructor(expected, at) {
    super(`Not JSON: expected ${expected} at character ${at + 1}.`);
    this.name = "NotJson";
  }
}

const NUMBER = /-?(?:0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?/y;
const STRING = /"(?:[^"\\\u0000-\u001f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*"/y;
const PLAIN = /[^"\\\u0000-\u001f]*/y;
const SPACE = /[ \t\r\n]*/y;
const PLAIN_MIN = 1 << 16; // longer strings are looked through without the costly expression

/**
 * @param {string} text
 * @param {AbortSignal} [signal]
 * @returns {Promise<any>}
 */
export async function parseExact(text, signal) {
  const steps = parse(text);
  let until = performance.now() + SLICE_MS;
  for (;;) {
    const { done, value } = steps.next();
    if (done) return value;
    if (performance.now() >= until) {
      await new Promise((resolve) => setTimeout(resolve));
      signal?.throwIfAborted();
      until = performance.now() + SLICE_MS;
    }
  }
}

/**
 * At once, for short texts.
 * @param {string} text
 * @returns {any}
 */
export function parseExactNow(text) {
  const steps = parse(text);
  for (;;) {
    const { done, value } = steps.next();
    if (done) return value;
  }
}

/**
 * @param {string} text
 * @returns {Generator<undefined, any, void>}
 */
function* parse(text) {
  let at = 0;
  /** @type {any[]} the containers around the present place */
  const stack = [];
  /** @type {(string | null)[]} the key that waits for its value in each of them */
  const keys = [];
  /** @type {any} */
  let value;
  let steps = 0;
  const space = () => {
    SPACE.lastIndex = at;
    SPACE.test(text);
    at = SPACE.lastIndex;
  };
  const readKey = () => {
    space();
    if (text[at] !== '"') throw new NotJson("a key in quotes", at);
    const [key, end] = string(text, at);
    at = end;
    space();
    if (text[at] !== ":") throw new NotJson("a colon", at);
    at += 1;
    return key;
  };
  for (;;) {
    if (++steps % STEPS_A_CHECK === 0) yield;
    space();
    const char = text[at];
    if (char === "{" || char === "[") {
      const isList = char === "[";
      at += 1;
      space();
      value = isList ? [] : {};
      if (text[at] === (isList ? "]" : "}")) {
        at += 1;
      } else {
        stack.push(value);
        keys.push(isList ? null : readKey());
        continue;
      }
    } else if (char === '"') {
      [value, at] = string(text, at);
    } else {
      [value, at] = scalar(text, at);
    }
    // The value is complete; so may be what it is in.
    for (;;) {
      if (!stack.length) {
        space();
        if (at < text.length) throw new NotJson("the end", at);
        return value;
      }
      const parent = stack[stack.length - 1];
      const key = keys[keys.length - 1];
      if (key === null) parent.push(value);
      else if (key !== "__proto__") parent[key] = value;
      else Object.defineProperty(parent, key, { value, enumerable: true, configurable: true, writable: true }); // not its prototype
      space();
      const next = text[at];
      if (next === ",") {
        at += 1;
        if (key !== null) keys[keys.length - 1] = readKey();
        break;
      }
      if (next !== (key === null ? "]" : "}")) throw new NotJson(key === null ? "a comma or ]" : "a comma or }", at);
      at += 1;
      value = stack.pop();
      keys.pop();
      if (++steps % STEPS_A_CHECK === 0) yield;
    }
  }
}

/**
 * @param {string} text
 * @param {number} at
 * @returns {[string, number]} the string and its end
 */
function string(text, at) {
  PLAIN.lastIndex = at + 1;
  PLAIN.test(text);
  const plain = PLAIN.lastIndex;
  if (text[plain] === '"') return [text.slice(at + 1, plain), plain + 1];
  if (plain - at > PLAIN_MIN) return longString(text, at, plain);
  STRING.lastIndex = at;
  let isString = false;
  try {
    isString = STRING.test(text);
  } catch {
    // too long for the regular expression's stack
  }
  if (isString) return [JSON.parse(text.slice(at, STRING.lastIndex)), STRING.lastIndex];
  return longString(text, at, plain);
}

/**
 * A string with escapes that is long, or not valid.
 * @param {string} text
 * @param {number} at
 * @param {number} from the first character that is not plain
 * @returns {[string, number]}
 */
function longString(text, at, from) {
  let end = from;
  while (end < text.length && text[end] !== '"') {
    if (text.charCodeAt(end) < 0x20) throw new NotJson("no control character in a string", end);
    end += text[end] === "\\" ? 2 : 1;
  }
  if (end >= text.length) throw new NotJson("the end of the string that begins here", at);
  try {
    return [JSON.parse(text.slice(at, end + 1)), end + 1];
  } catch {
    throw new NotJson("no other escape than JSON's in the string that begins here", at);
  }
}

/**
 * @param {string} text
 * @param {number} at
 * @returns {[any, number]}
 */
function scalar(text, at) {
  for (const [word, value] of /** @type {[string, any][]} */ ([["true", true], ["false", false], ["null", null]])) {
    if (text.startsWith(word, at)) return [value, at + word.length];
  }
  NUMBER.lastIndex = at;
  const found = NUMBER.exec(text);
  if (!found) throw new NotJson("a value", at);
  return [exactNumber(found[0], !found[1] && !found[2]), NUMBER.lastIndex];
}

/**
 * @param {string} digits
 * @param {boolean} isWhole without a fraction or an exponent
 */
function exactNumber(digits, isWhole) {
  const number = Number(digits);
  if (isWhole) {
    if (Number.isSafeInteger(number)) return Object.is(number, -0) ? new ExactNumber(digits) : number;
    return digits.length <= 400 ? BigInt(digits) : new ExactNumber(digits);
  }
  return String(number) === digits ? number : new ExactNumber(digits);
}

/**
 * Text again, with numbers as they were and lines indented: at most so many characters.
 * @param {any} value
 * @param {number} charsMax
 * @returns {string}
 */
export function prettyJson(value, charsMax) {
  const out = /** @type {string[]} */ ([]);
  let size = 0;
  const put = (/** @type {string} */ piece) => {
    out.push(piece);
    size += piece.length;
  };
  /** @type {{close: string, items: Iterator<[string | null, any]>, isFirst: boolean}[]} */
  const stack = [];
  const begin = (/** @type {any} */ each) => {
    if (each === null || typeof each !== "object" || each instanceof ExactNumber) {
      put(typeof each === "string" ? JSON.stringify(each) : String(each));
      return;
    }
    const isList = Array.isArray(each);
    put(isList ? "[" : "{");
    stack.push({ close: isList ? "]" : "}", items: entries(each), isFirst: true });
  };
  begin(value);
  while (stack.length && size < charsMax) {
    const top = stack[stack.length - 1];
    const { done, value: entry } = top.items.next();
    if (done) {
      stack.pop();
      put(top.isFirst ? top.close : `\n${"  ".repeat(Math.min(stack.length, 100))}${top.close}`);
      continue;
    }
    put(`${top.isFirst ? "" : ","}\n${"  ".repeat(Math.min(stack.length, 100))}`);
    top.isFirst = false;
    if (entry[0] !== null) put(`${JSON.stringify(entry[0])}: `);
    begin(entry[1]);
  }
  return out.join("");
}

/**
 * @param {any} container
 * @returns {Iterator<[string | null, any]>}
 */
function* entries(container) {
  if (Array.isArray(container)) for (const each of container) yield [null, each];
  else for (const key of Object.keys(container)) yield [key, container[key]];
}
