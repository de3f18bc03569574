// Dropped messages and elements: hop, reason, count and hint.

import { h, problem, replace, table } from './dom.js';
import { count, since } from './format.js';
import { errors, model } from './model.js';

const HOPS = {
  discovery: 'discovery datagrams that were refused',
  http: 'requests and answers that were refused',
  event: 'notifications of devices that were not understood',
  element: 'elements that did not fit their stream',
  exchange: 'refused requests and elements of other nodes',
};

/** Opens the page. */
export function open(root) {
  const body = h('div');
  let drawn = null;
  replace(
    root,
    h('h1', null, 'Dropped'),
    h(
      'p',
      { class: 'quiet' },
      'Messages and elements that this node refused or could not use, with the reasons. ',
      'Acknowledged elements are never dropped.',
    ),
    body,
  );

  function fill() {
    const state = JSON.stringify([model.drops, errors.drops?.title, Math.floor(Date.now() / 5000)]);
    if (state === drawn || body.contains(document.activeElement)) return;
    drawn = state;
    if (errors.drops) {
      replace(body, problem(errors.drops));
      return;
    }
    if (!model.drops) return;
    if (model.drops.length === 0) {
      replace(body, h('p', { class: 'lead' }, 'Nothing was dropped since the node was started.'));
      return;
    }
    const hops = new Map();
    for (const one of model.drops) hops.set(one.at_hop, [...(hops.get(one.at_hop) ?? []), one]);
    replace(
      body,
      [...hops].map(([hop, drops]) =>
        h(
          'section',
          null,
          h('h2', { title: HOPS[hop] ?? '' }, hop),
          HOPS[hop] ? h('p', { class: 'quiet' }, HOPS[hop]) : null,
          table(
            `Dropped at ${hop}`,
            ['count', 'reason', 'from', 'last'],
            drops
              .sort((a, b) => (a.last_at < b.last_at ? 1 : -1))
              .map((one) => [
                count(one.count),
                [
                  h('b', null, String(one.reason).replaceAll('_', ' ')),
                  one.detail ? h('span', { class: 'detail' }, one.detail) : null,
                  one.hint ? h('p', { class: 'hint' }, h('b', null, 'hint: '), one.hint) : null,
                ],
                h('code', null, one.peer ?? '–'),
                `${since(one.last_at)} ago`,
              ]),
            'stack drops',
          ),
        ),
      ),
    );
  }
  fill();
  return { changed: (kind) => kind === 'drops' && fill(), tick: fill, close() {} };
}
