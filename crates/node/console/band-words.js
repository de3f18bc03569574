// What an answer of `completeness` says, for the bands under a chart and the line below it.

import { count } from './format.js';

const seconds = (time, otherwise) => (time ? Date.parse(time) / 1000 : otherwise);

/** What an answer of `completeness` says, as bands of seconds since 1970. */
export function bandsOf(answer) {
  const away = answer.away.map((one) => ({
    kind: 'away',
    from: seconds(one.from, -Infinity),
    to: seconds(one.to, Infinity),
  }));
  const gaps = answer.gaps.map((one) => ({
    kind: one.kind,
    from: seconds(one.from, -Infinity),
    to: seconds(one.to, Infinity),
  }));
  return [...away, ...gaps];
}

/** The answer in words; empty while nothing is missing. */
export function words(answer) {
  const total = (counts) => Object.values(counts).reduce((sum, one) => sum + one.elements, 0);
  const parts = [];
  const lost = total(answer.lost);
  const refused = total(answer.refused);
  if (lost) parts.push(`${count(lost)} elements lost (${Object.keys(answer.lost).join(', ')})`);
  if (refused) parts.push(`${count(refused)} refused`);
  if (answer.away_s > 0) parts.push(`source away for ${Math.round(answer.away_s)} s`);
  if (parts.length && !answer.exact) parts.push('not exact');
  return parts.join(', ');
}
