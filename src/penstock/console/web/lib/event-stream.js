// Reads server-sent events with `fetch`: unlike EventSource it shows what the server says when it refuses.

const RETRY_MS = 1000;

/**
 * @param {(lastId: string) => Promise<ReadableStream<string>>} open
 * @param {AbortSignal} signal
 * @param {{onEvent: (event: {event: string, data: any, id: string}) => void, onOpen?: () => void, onError: (error: unknown) => void}} on
 */
export async function readEvents(open, signal, on) {
  let lastId = "";
  let retryMs = RETRY_MS;
  let isOver = false;
  const dispatch = (/** @type {string} */ block) => {
    /** @type {string[]} */
    const data = [];
    let event = "message";
    for (const line of block.split("\n")) {
      const colon = line.indexOf(":");
      const name = colon < 0 ? line : line.slice(0, colon);
      const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
      if (name === "data") data.push(value);
      else if (name === "event") event = value;
      else if (name === "id") lastId = value;
      else if (name === "retry" && /^\d+$/.test(value)) retryMs = Number(value);
    }
    if (event === "end") isOver = true;
    if (data.length) on.onEvent({ event, data: parsed(data.join("\n")), id: lastId });
  };
  while (!isOver && !signal.aborted) {
    try {
      const reader = (await open(lastId)).getReader();
      on.onOpen?.();
      let rest = "";
      for (;;) {
        const { value, done } = await reader.read();
        if (done || signal.aborted) break;
        const blocks = (rest + value).split("\n\n");
        rest = blocks.pop() ?? "";
        blocks.forEach(dispatch);
      }
    } catch (error) {
      if (signal.aborted) return;
      on.onError(error);
      const status = /** @type {any} */ (error).status ?? 0;
      if (status >= 400 && status < 500) return;
    }
    if (!isOver) await new Promise((resolve) => setTimeout(resolve, retryMs));
  }
}

/** @param {string} text */
function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}
