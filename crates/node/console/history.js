// Elements of before the page was opened, read once for each stream, two requests at a time.

import { path, query, read } from './api.js';
import * as live from './live.js';
import { model, stream, watch } from './model.js';

const AT_ONCE = 2;

const asked = new Map();
const waiting = [];
let running = 0;

/**
 * Reads the newest `points` elements of a stream into its buffer, unless as many were read before.
 */
export function before(name, points) {
  if ((asked.get(name) ?? 0) >= points) return;
  asked.set(name, points);
  waiting.push([name, points]);
  work();
}

// A stream is asked for when it is known to be there: a virtual sensor that waits has none yet.
watch((kind) => kind === 'streams' && work());

async function work() {
  if (running >= AT_ONCE || !model.streams) return;
  const next = waiting.findIndex(([name]) => stream(name));
  if (next < 0) return;
  running += 1;
  const [[name, points]] = waiting.splice(next, 1);
  try {
    const body = await read(query(path('streams', name, 'elements'), { newest: points }));
    live.buffer(name).backfill(body.elements ?? []);
  } catch {
    asked.delete(name);
  } finally {
    running -= 1;
    work();
  }
}
