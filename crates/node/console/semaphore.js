// Signs in the manner of Chappe's telegraph: a beam on a mast (the regulator) with an arm at each
// end (the indicators). Every state has a position of its own, so that colour is never the only
// sign.

import { svg } from './dom.js';

const POSITIONS = {
  // [turn of the beam, turn of the left arm, turn of the right arm] in degrees
  good: [0, 90, -90],
  attention: [-45, 45, 45],
  gone: [90, 0, 0],
  waiting: [0, 45, -45],
};

const STATES = {
  usable: ['good', 'usable'],
  running: ['good', 'running'],
  live: ['good', 'live'],
  attention: ['attention', 'needs attention'],
  failed: ['attention', 'failed'],
  broken: ['attention', 'reconnecting'],
  waiting: ['waiting', 'waiting'],
  opening: ['waiting', 'connecting'],
  connected: ['good', 'connected'],
  connecting: ['waiting', 'connecting'],
  ended: ['gone', 'ended'],
  gone: ['gone', 'gone'],
  offline: ['gone', 'offline'],
  excluded: ['gone', 'left out'],
};

function arms([beam, left, right]) {
  return svg(
    'g',
    { transform: `rotate(${beam} 12 9)` },
    svg('line', { x1: 5, y1: 9, x2: 19, y2: 9 }),
    svg('line', { x1: 5, y1: 9, x2: 9.5, y2: 9, transform: `rotate(${left} 5 9)` }),
    svg('line', { x1: 19, y1: 9, x2: 14.5, y2: 9, transform: `rotate(${right} 19 9)` }),
  );
}

/** The display name of a state. */
export function word(state) {
  return STATES[state]?.[1] ?? state;
}

/** The sign of a state, with its name for screen readers. */
export function sign(state) {
  const [position] = STATES[state] ?? ['waiting'];
  return svg(
    'svg',
    { class: `sign ${position}`, viewBox: '0 0 24 24', role: 'img', 'aria-label': word(state) },
    svg('line', { class: 'mast', x1: 12, y1: 9, x2: 12, y2: 23 }),
    arms(POSITIONS[position]),
  );
}

/** Changes a sign in place when the state is another one. */
export function setSign(holder, state) {
  if (holder.chappeState === state) return;
  holder.chappeState = state;
  holder.replaceChildren(sign(state));
}
