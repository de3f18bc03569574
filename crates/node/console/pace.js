// The work of pacers: a line of the elements in flight over time.

import { Ring } from './ring.js';
import { spark } from './spark.js';

/** Lines that are drawn at once, and points of each. */
const PACES_MAX = 32;
const PACE_POINTS = 120;

/** Elements in flight over time, one line for each pacer. */
export function paces() {
  const known = new Map();
  return {
    /** The line of a pacer, with one point more; nothing beyond those that are drawn. */
    line(id, occupation) {
      let found = known.get(id);
      if (!found) {
        if (known.size >= PACES_MAX) return null;
        const field = { name: 'in flight', type: 'integer', unit: '1' };
        const ring = new Ring(1, PACE_POINTS);
        const buffer = { waves: new Map(), scalars: [field], ring, newest: 0 };
        found = { buffer, line: spark(buffer, 'elements in flight, as the pacer counts them') };
        known.set(id, found);
      }
      const now = Date.now() / 1000;
      found.buffer.ring.push(now, [occupation]);
      found.buffer.newest = now;
      return found.line.node;
    },
    /** Those that are no more are forgotten. */
    keep(ids) {
      const kept = new Set(ids);
      for (const [id, { line }] of known) {
        if (kept.has(id)) continue;
        line.end();
        known.delete(id);
      }
    },
    end() {
      for (const { line } of known.values()) line.end();
      known.clear();
    },
  };
}
