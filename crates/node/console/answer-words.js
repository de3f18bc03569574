// Texts about the missing parts of an answer to SQL.

import { count } from './format.js';

/** One sentence for each missing part; none when the answer is complete. */
export function lacks({ read, rows, truncated }) {
  const sentences = [];
  for (const one of read ?? []) {
    if (!one.complete)
      sentences.push(
        `Only the newest ${count(one.elements)} of ${count(one.kept)} elements of ${one.stream} were read.`,
      );
    if (one.damaged)
      sentences.push(`Up to ${count(one.damaged)} damaged elements of ${one.stream} are missing.`);
  }
  if (truncated) sentences.push(`More than these ${count(rows.length)} rows exist.`);
  return sentences;
}
