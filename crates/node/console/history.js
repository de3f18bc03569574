// Elements of before the page was opened, read once for each stream, two requests at a time.

import { path, query, read } from './api.js';
import * as live from './live.js';
import { model, stream } from './model.js';

const AT_ONCE = 2;

const asked = new Map();
const waiting = [];
let running = 0;

/** Reads the newest `points` elements of a stream into its buffer, unless as many were read before. */
export function before(name, points) {
  if ((asked.get(name) ?? 0) >= points || (model.streams && !stream(name))) return;
  asked.set(name, points);
  waiting.push([name, points]);
  work();
}

async function work() {
  if (running >= AT_ONCE || waiting.length === 0) return;
  running += 1;
  const [name, points] = waiting.shift();
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
