// Reads MessagePack: one value that fills the bytes, with a bound on depth and work.

const DEPTH_MAX = 100;
const ITEMS_MAX = 100_000;

/**
 * @param {Uint8Array} bytes
 * @returns {any} Throws if the bytes are not one whole value.
 */
export function readMessagePack(bytes) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
  const utf8 = new TextDecoder("utf-8", { fatal: true });
  let at = 0;
  let items = 0;

  /** @param {number} size */
  const take = (size) => {
    if (at + size > bytes.length) throw new Error(`Not MessagePack: it ends within a value, at byte ${bytes.length}.`);
    at += size;
    return at - size;
  };
  const text = (/** @type {number} */ size) => utf8.decode(bytes.subarray(take(size), at));
  const binary = (/** @type {number} */ size) => `bytes ${[...bytes.subarray(take(size), at)].map((byte) => byte.toString(16).padStart(2, "0")).join("")}`;
  const extension = (/** @type {number} */ size) => {
    const type = view.getInt8(take(1));
    return `extension ${type}: ${binary(size)}`;
  };
  const safe = (/** @type {bigint} */ value) => (Number.isSafeInteger(Number(value)) ? Number(value) : value);

  /** @param {number} count @param {number} depth */
  const list = (count, depth) => {
    const made = [];
    for (let each = 0; each < count; each++) made.push(value(depth + 1));
    return made;
  };
  /** @param {number} count @param {number} depth */
  const map = (count, depth) => {
    const made = Object.create(null);
    for (let each = 0; each < count; each++) {
      const key = value(depth + 1);
      made[typeof key === "object" ? JSON.stringify(key) : String(key)] = value(depth + 1);
    }
    return made;
  };
  /** @type {Record<number, (depth: number) => any>} */
  const forms = {
    0xc0: () => null,
    0xc2: () => false,
    0xc3: () => true,
    0xc4: () => binary(view.getUint8(take(1))),
    0xc5: () => binary(view.getUint16(take(2))),
    0xc6: () => binary(view.getUint32(take(4))),
    0xc7: () => extension(view.getUint8(take(1))),
    0xc8: () => extension(view.getUint16(take(2))),
    0xc9: () => extension(view.getUint32(take(4))),
    0xca: () => view.getFloat32(take(4)),
    0xcb: () => view.getFloat64(take(8)),
    0xcc: () => view.getUint8(take(1)),
    0xcd: () => view.getUint16(take(2)),
    0xce: () => view.getUint32(take(4)),
    0xcf: () => safe(view.getBigUint64(take(8))),
    0xd0: () => view.getInt8(take(1)),
    0xd1: () => view.getInt16(take(2)),
    0xd2: () => view.getInt32(take(4)),
    0xd3: () => safe(view.getBigInt64(take(8))),
    0xd4: () => extension(1),
    0xd5: () => extension(2),
    0xd6: () => extension(4),
    0xd7: () => extension(8),
    0xd8: () => extension(16),
    0xd9: () => text(view.getUint8(take(1))),
    0xda: () => text(view.getUint16(take(2))),
    0xdb: () => text(view.getUint32(take(4))),
    0xdc: (depth) => list(view.getUint16(take(2)), depth),
    0xdd: (depth) => list(view.getUint32(take(4)), depth),
    0xde: (depth) => map(view.getUint16(take(2)), depth),
    0xdf: (depth) => map(view.getUint32(take(4)), depth),
  };

  /** @param {number} depth @returns {any} */
  function value(depth) {
    if (depth > DEPTH_MAX || ++items > ITEMS_MAX) throw new Error("Not shown: this MessagePack is too deep or too long.");
    const byte = view.getUint8(take(1));
    if (byte < 0x80) return byte;
    if (byte >= 0xe0) return byte - 0x100;
    if (byte < 0x90) return map(byte & 0x0f, depth);
    if (byte < 0xa0) return list(byte & 0x0f, depth);
    if (byte < 0xc0) return text(byte & 0x1f);
    const form = forms[byte];
    if (!form) throw new Error(`Not MessagePack: there is no type 0x${byte.toString(16)}, which is at byte ${at - 1}.`);
    return form(depth);
  }

  const found = value(0);
  if (at !== bytes.length) throw new Error(`Not MessagePack: ${bytes.length - at} bytes follow the value.`);
  return found;
}
