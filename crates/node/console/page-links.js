// Links: the nodes that this node reads, and the readers of this node; their rates and lags, refused
// and lost elements with reasons, and dead letters.

import { change, path, query, read } from './api.js';
import { facts, h, problem, replace, setText, table } from './dom.js';
import { age, bytes, count, moment, paced, rate } from './format.js';
import { picture } from './link-picture.js';
import { errors, link, model, refresh } from './model.js';
import { paces } from './pace.js';
import { setSign, word } from './semaphore.js';

const LETTERS_SHOWN = 50;
const SUMMED = [
  'sent', 'sent_again', 'acknowledged', 'in_flight', 'lag_elements', 'refused', 'rate_per_s',
];
const LINKS_EVERY_MS = 1_000;

/** Opens the list, or one link. */
export function open(root, at) {
  return at.subject ? openOne(root, at.subject) : openList(root);
}

/** Reasons with their counts in one line. */
export function reasons(counts) {
  return Object.entries(counts ?? {})
    .filter(([, number]) => number > 0)
    .map(([reason, number]) => `${count(number)} ${reason.replaceAll('_', ' ')}`)
    .join(', ');
}

/** The lag of a link or a stream in one cell: elements, where the origin reports them, and time. */
export function behind(one) {
  const late = one.lag_s >= 1 ? age(one.lag_s * 1000) : null;
  const none = one.lag_elements === null ? '-' : '0';
  if (!one.lag_elements) return late ? `${late} late` : none;
  return `${count(one.lag_elements)}${late ? ` (${late})` : ''}`;
}

/** The host of an address like tcp://host:port. */
export function host(address) {
  return (address ?? '').replace(/^[a-z]+:\/\//, '').replace(/\/$/, '');
}

const KINDS = {
  zeromq: 'ZeroMQ sessions',
  zeromq_best_effort: 'ZeroMQ, best effort',
  http_pull: 'HTTP pull',
  http_push: 'HTTP push',
};

function kind(one) {
  return KINDS[one.kind] ?? one.kind;
}

function href(name) {
  return `#/links/${encodeURIComponent(name)}`;
}

/**
 * The readers. Connections of one kind with the same key, or with the same address if none proved a
 * key, count as one reader.
 */
export function readersOf(peers) {
  const found = new Map();
  for (const one of peers) {
    const who = one.key ?? host(one.address).replace(/:\d+$/, '');
    const key = `${one.kind} ${who}`;
    let reader = found.get(key);
    if (!reader) {
      const { kind: how, key: proven, address } = one;
      reader = { id: key, kind: how, key: proven, address, who, connections: 0, streams: new Set() };
      for (const name of SUMMED) reader[name] = 0;
      reader.occupation = 0;
      reader.paced = 0;
      reader.period = 0;
      reader.states = new Set();
      found.set(key, reader);
    }
    reader.connections += 1;
    for (const name of SUMMED) reader[name] += one[name] ?? 0;
    reader.occupation = Math.max(reader.occupation, one.occupation ?? 0);
    if (one.pacing) {
      reader.paced += one.pacing.occupation;
      reader.period = Math.max(reader.period, one.pacing.period_s);
      reader.states.add(one.pacing.state);
    }
    for (const stream of one.streams ?? []) reader.streams.add(stream);
  }
  return [...found.values()];
}

/** The pacers of a reader as text: their states, and the time between two frames. */
export function pace(one) {
  return one.states.size ? paced([...one.states].join(', '), one.period) : '';
}

/** The number of refused streams of a link, as text. */
export function refusedStreams(one) {
  const refused = (one.streams ?? []).filter((stream) => stream.refusal).length;
  return refused ? `${count(refused)} ${refused === 1 ? 'stream' : 'streams'} refused` : '';
}

/** The links and readers for the picture. */
export function seen(model) {
  const { links = [], peers = [] } = model.links ?? {};
  return {
    self: { name: model.node?.name ?? 'this node', more: `${count(model.streams?.length)} streams` },
    origins: links.map((one) => ({
      key: one.name,
      name: one.name,
      more: host(one.address),
      state: one.state,
      perSecond: one.rate_per_s,
      lag: one.lag_elements,
      lagSeconds: one.lag_s,
    })),
    readers: readersOf(peers).map((one) => ({
      key: one.id,
      name: one.key ? host(one.address) : one.who,
      more: `${kind(one)}, ${count(one.streams.size)} streams`,
      state: 'connected',
      perSecond: one.rate_per_s,
      lag: one.lag_elements,
      lagSeconds: 0,
    })),
  };
}

/** Reads the links often while they are looked at. */
function beat() {
  const timer = setInterval(() => {
    if (!document.hidden) refresh('links');
  }, LINKS_EVERY_MS);
  return () => clearInterval(timer);
}

function openList(root) {
  const trouble = h('div');
  const drawing = picture();
  const nothing = h(
    'div',
    { class: 'lead' },
    h('p', null, 'No links and no readers.'),
    h(
      'p',
      { class: 'quiet' },
      'A link copies streams of another node to this one: ',
      h('code', null, 'chappe link add NAME http://HOST:PORT'),
      '.',
    ),
  );
  const links = h('section');
  const peers = h('section');
  const lines = paces();
  let drawn = null;
  replace(root, h('h1', null, 'Links'), trouble, nothing, drawing.node, links, peers);

  function linkRow(one) {
    const mark = h('span', { class: 'at' });
    setSign(mark, one.state);
    return [
      [mark, ' ', h('a', { href: href(one.name) }, h('b', null, one.name))],
      word(one.state),
      h('span', { title: one.address }, `${host(one.address)}, ${kind(one)}`),
      rate(one.rate_per_s),
      behind(one),
      bytes(one.held_bytes),
      [refusedStreams(one), reasons(one.refused), reasons(one.lost)].filter(Boolean).join('; '),
      count(one.reconnects),
      one.dead_letters ? h('a', { href: href(one.name) }, count(one.dead_letters)) : '',
      one.last_error ? h('span', { class: 'detail' }, one.last_error) : '',
    ];
  }

  function peerRow(one) {
    return [
      h('span', { title: one.key ?? '' }, one.key ? host(one.address) : one.who),
      one.connections > 1 ? `${kind(one)}, ${count(one.connections)} connections` : kind(one),
      count(one.streams.size),
      rate(one.rate_per_s),
      count(one.sent),
      count(one.acknowledged),
      `${count(one.in_flight)} (${Math.round((one.occupation ?? 0) * 100)} %)`,
      count(one.lag_elements),
      count(one.sent_again),
      one.states.size ? [lines.line(one.id, one.paced), ' ', pace(one)] : '',
      one.refused ? count(one.refused) : '',
    ];
  }

  function fill() {
    replace(trouble, errors.links ? problem(errors.links) : null);
    if (!model.links) return;
    const { links: all = [], peers: readers = [] } = model.links;
    const isEmpty = all.length + readers.length === 0;
    nothing.hidden = !isEmpty;
    drawing.node.hidden = isEmpty;
    drawing.show(seen(model));
    const state = JSON.stringify(model.links);
    if (state === drawn || links.contains(document.activeElement)) return;
    drawn = state;
    const columns = [
      'link', 'state', 'origin', 'rate', 'lag', 'held', 'refused, lost', 'reconnections',
      'dead letters', 'last error',
    ];
    replace(
      links,
      all.length
        ? [
            h('h2', null, 'Read from other nodes'),
            table('Links', columns, all.map(linkRow), 'stack links'),
          ]
        : null,
    );
    const heads = [
      'reader', 'kind', 'streams', 'rate', 'sent', 'acknowledged', 'in flight (window)', 'lag',
      'retransmitted', 'pace', 'refused',
    ];
    const found = readersOf(readers);
    lines.keep(found.map((one) => one.id));
    replace(
      peers,
      found.length
        ? [
            h('h2', null, 'Readers of this node'),
            table('Readers', heads, found.map(peerRow), 'stack links readers'),
          ]
        : null,
    );
  }
  const endBeat = beat();
  refresh('links');
  fill();
  return {
    changed: (what) => ['links', 'node', 'streams'].includes(what) && fill(),
    close() {
      endBeat();
      lines.end();
      drawing.end();
    },
  };
}

function openOne(root, name) {
  const head = h('div');
  const body = h('div');
  const letters = h('section');
  let drawn = null;
  let kept = null;
  replace(
    root,
    h('p', { class: 'crumb' }, h('a', { href: '#/links' }, 'Links')),
    head,
    body,
    letters,
  );

  function streamRow(one) {
    return [
      h('a', { href: `#/streams/${encodeURIComponent(one.local_name)}` }, one.local_name),
      rate(one.rate_per_s),
      behind(one),
      `${Math.round((one.occupation ?? 0) * 100)} %`,
      bytes(one.held_bytes),
      count(one.acknowledged),
      count(one.repeated),
      one.refusal ?? [one.refused, one.lost].map(reasons).filter(Boolean).join('; '),
    ];
  }

  function fill() {
    const one = link(name);
    if (!one) {
      if (model.links) replace(head, h('h1', null, 'No such link'));
      return;
    }
    const state = JSON.stringify(one);
    if (state === drawn || body.contains(document.activeElement)) return;
    drawn = state;
    const mark = h('span', { class: 'at' });
    setSign(mark, one.state);
    replace(
      head,
      h('h1', null, mark, name),
      h(
        'p',
        { class: 'lead', 'data-state': one.state },
        h('b', null, word(one.state)),
        `, ${rate(one.rate_per_s)}${behind(one) === '0' ? '' : `, lag: ${behind(one)}`}`,
      ),
      one.last_error
        ? problem({ title: 'last error', detail: one.last_error, hint: one.hint })
        : null,
    );
    const columns = [
      'stream', 'rate', 'lag', 'window', 'held', 'acknowledged', 'duplicates', 'refused, lost',
    ];
    replace(
      body,
      h('h2', null, 'Streams'),
      one.streams?.length
        ? table('Streams of the link', columns, one.streams.map(streamRow), 'stack links link-streams')
        : h('p', { class: 'quiet' }, 'None yet.'),
      h('h2', null, 'Settings'),
      facts([
        ['origin', h('code', null, one.address)],
        ['kind', kind(one)],
        ['serialization', one.serialization],
        ['streams', (one.selects ?? []).map((text) => h('code', null, text))],
        ['local names', one.as_prefix ? `${one.as_prefix}.…` : null],
        ['defined by', one.configured ? 'the configuration' : 'chappe link add'],
        ['received', bytes(one.bytes_received)],
        ['reconnections', count(one.reconnects)],
      ]),
    );
    if (kept !== one.dead_letters) {
      kept = one.dead_letters;
      readLetters();
    }
  }

  const letterPath = (...rest) => path('links', name, 'dead-letters', ...rest);

  async function readLetters() {
    try {
      const page = await read(query(letterPath(), { limit: LETTERS_SHOWN }));
      showLetters(page.dead_letters ?? []);
    } catch (error) {
      replace(letters, problem(error));
    }
  }

  async function act(button, verb, numbers) {
    button.disabled = true;
    const result = h('p', { class: 'quiet', role: 'status' });
    try {
      const done = await change('POST', letterPath(verb), numbers ? { numbers } : {});
      await refresh('links');
      await readLetters();
      const failed = done.refused ?? [];
      setText(result, `${count(done.done)} done, ${count(failed.length)} failed`);
      letters.append(result, ...(failed.length ? [problem({ title: failed[0].why })] : []));
    } catch (error) {
      button.disabled = false;
      letters.append(problem(error));
    }
  }

  function act1(label, verb, numbers, className = '') {
    const button = h('button', { type: 'button', class: className }, label);
    button.addEventListener('click', () => act(button, verb, numbers));
    return button;
  }

  function showLetters(found) {
    replace(
      letters,
      h('h2', null, 'Dead letters'),
      found.length === 0
        ? h('p', { class: 'quiet' }, 'None: all received elements were stored.')
        : [
            h(
              'p',
              { class: 'bar' },
              `${count(kept)} received elements could not be stored.`,
              act1('Send all again', 'send-again', null, 'main'),
              act1('Discard all', 'discard', null),
            ),
            table(
              'Dead letters',
              ['number', 'stream', 'reason', 'received', 'size', ''],
              found.map((one) => [
                String(one.number),
                one.stream,
                [h('b', null, one.reason), one.text ? h('span', { class: 'detail' }, one.text) : null],
                moment(one.received_at),
                bytes(one.bytes),
                [
                  act1('Send again', 'send-again', [one.number]),
                  ' ',
                  act1('Discard', 'discard', [one.number]),
                ],
              ]),
              'stack letters',
            ),
            found.length < kept
              ? h('p', { class: 'foot' }, `the first ${count(found.length)} are shown`)
              : null,
          ],
    );
  }
  const endBeat = beat();
  refresh('links');
  fill();
  readLetters();
  return { changed: (what) => what === 'links' && fill(), close: endBeat };
}
