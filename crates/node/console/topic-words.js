// Texts about DDS topics.

import { count } from './format.js';

/** The quality of service that a writer offers or a reader requests, in one line. */
export function quality(qos) {
  const history = qos.keep_last ? `last ${count(qos.keep_last)}` : 'all';
  const deadline = qos.deadline_ms ? `, deadline ${count(qos.deadline_ms)} ms` : '';
  const words = [qos.reliability, qos.durability].map((one) => one.replaceAll('_', ' '));
  return `${words.join(', ')}, keeps ${history} of ${count(qos.max_samples)}${deadline}`;
}

/** The troubles of a writer in one line; empty when there are none. */
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

/** Whether a topic needs attention. */
export function needsLook(topics) {
  if (!topics?.participant) return false;
  const { state, writers, readers } = topics.participant;
  return state === 'given_up' || [...writers, ...readers].some((one) => one.stalled || one.mismatches);
}

/** The number of configured topics. */
export function named(topics) {
  const all = (topics?.publications?.length ?? 0) + (topics?.subscriptions?.length ?? 0);
  return all || null;
}
