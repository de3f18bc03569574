// What is said of DDS topics: texts only.

import { count } from './format.js';

/** What a writer offers or a reader requests, in one line. */
export function quality(qos) {
  const history = qos.keep_last ? `last ${count(qos.keep_last)}` : 'all';
  const deadline = qos.deadline_ms ? `, deadline ${count(qos.deadline_ms)} ms` : '';
  const words = [qos.reliability, qos.durability].map((one) => one.replaceAll('_', ' '));
  return `${words.join(', ')}, keeps ${history} of ${count(qos.max_samples)}${deadline}`;
}

/** What is wrong at a writer, in one line; nothing when nothing is. */
export function troubles(one) {
  const counted = [
    [one.stalled ? 'a reader acknowledges nothing' : null, true],
    ['given up', one.given_up],
    ['lost', one.lost],
    ['deadlines missed', one.deadlines_missed],
    ['not fitting', one.mismatches],
  ];
  return counted
    .filter(([words, number]) => words && number)
    .map(([words, number]) => (number === true ? words : `${count(number)} ${words}`))
    .join('; ');
}

/** Whether somebody has to look. */
export function needsLook(topics) {
  if (!topics?.participant) return false;
  const { state, writers, readers } = topics.participant;
  return state === 'given_up' || [...writers, ...readers].some((one) => one.stalled || one.mismatches);
}

/** How many topics the configuration names. */
export function named(topics) {
  const all = (topics?.publications?.length ?? 0) + (topics?.subscriptions?.length ?? 0);
  return all || null;
}
