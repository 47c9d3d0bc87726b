// Polls that cost the node little: one whose answer takes long is asked less often.

const SHARE = 100; // of the time, the node spends one part on answering

/**
 * A function for `poll()` that repeats its last value until its turn has come.
 * @template T
 * @param {(signal: AbortSignal) => Promise<T>} ask
 * @param {() => string} [key] Reads the signals that `ask` depends on; when it changes, the value is asked for at once.
 * @returns {((signal: AbortSignal) => Promise<T>) & {hurry: () => void}} `hurry` lets the next turn ask
 */
export function paced(ask, key = () => "") {
  let next = 0;
  /** @type {{key: string, value: T} | null} */
  let last = null;
  const turn = async (/** @type {AbortSignal} */ signal) => {
    const now = key();
    if (last?.key === now && Date.now() < next) return last.value;
    const begun = Date.now();
    const value = await ask(signal);
    next = Date.now() + (Date.now() - begun) * SHARE;
    last = { key: now, value };
    return value;
  };
  const hurry = () => {
    next = 0;
  };
  return Object.assign(turn, { hurry });
}
