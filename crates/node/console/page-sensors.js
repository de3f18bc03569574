// Virtual sensors: their statements, and their current and past bindings with reasons.

import { facts, h, keyed, problem, replace, setText, table } from './dom.js';
import { moment, short, since, unit } from './format.js';
import { before } from './history.js';
import * as live from './live.js';
import { errors, model, sensor } from './model.js';
import { reasons } from './page-links.js';
import { alarmed, newestText, waitingFor } from './page-overview.js';
import { setSign, word } from './semaphore.js';
import { editor } from './sensor-editor.js';
import { spark } from './spark.js';

const KEYWORDS = new Set(
  `select from where group by having order limit as and or not in is null case when then else end
   join left inner outer on using distinct between like avg count sum min max abs round over with
   partition union all desc asc coalesce cast lag lead`.split(/\s+/),
);
const TOKEN = /(--[^\n]*)|('(?:[^']|'')*')|([A-Za-z_][\w$]*)|([^A-Za-z_'-]+|-)/g;

/** SQL with its words marked, as text nodes. */
export function sqlText(text) {
  const parts = [];
  for (const [all, comment, string, name] of (text ?? '').matchAll(TOKEN)) {
    const kind = comment
      ? 'c'
      : string
        ? 's'
        : name && KEYWORDS.has(name.toLowerCase())
          ? 'k'
          : null;
    parts.push(kind ? h('span', { class: kind }, all) : all);
  }
  return h('pre', { class: 'code' }, parts);
}

/** Opens the list, or one virtual sensor. */
export function open(root, at) {
  return at.subject ? openOne(root, at.subject) : openList(root);
}

function bindings(sensor) {
  return (sensor.sources ?? [])
    .map((one) => {
      const names = (one.bound ?? []).map((b) => b.stream);
      return names.length
        ? `${one.alias} = ${names.join(', ')}`
        : `${one.alias}: ${one.unbound_reason ?? 'not bound'}`;
    })
    .join('; ');
}

function openList(root) {
  const list = h('ul', { class: 'rows sensors' });
  const foot = h('p', { class: 'foot' });
  const trouble = h('div');
  const sparks = new Map();
  const added = h('details', null, h('summary', null, 'New virtual sensor'), editor(null));
  replace(root, h('h1', null, 'Virtual sensors'), trouble, foot, list, added);

  function create(sensor) {
    const line = spark(live.buffer(sensor.stream ?? sensor.name));
    before(sensor.stream ?? sensor.name, 60);
    sparks.set(sensor.stream ?? sensor.name, line);
    const row = {
      sign: h('span', { class: 'at' }),
      reason: h('p', { class: 'reason' }),
      newest: h('span'),
    };
    row.side = h('div', { class: 'side' }, line.node, row.newest);
    const node = h(
      'li',
      null,
      row.sign,
      h(
        'div',
        { class: 'words' },
        h('a', { href: `#/sensors/${encodeURIComponent(sensor.name)}` }, h('b', null, sensor.name)),
        row.reason,
      ),
      row.side,
    );
    node.chappeRow = row;
    node.chappeName = sensor.stream ?? sensor.name;
    return node;
  }

  function fill() {
    const sensors = model.sensors ?? [];
    keyed(
      list,
      sensors,
      (one) => one.name,
      create,
      (node, one) => {
        node.dataset.state = one.state;
        setSign(node.chappeRow.sign, one.state);
        setText(node.chappeRow.reason, one.state === 'failed' ? waitingFor(one) : bindings(one));
      },
    );
    for (const [name, line] of sparks) {
      if (line.node.isConnected) continue;
      line.end();
      sparks.delete(name);
    }
    const number = (state) => sensors.filter((one) => one.state === state).length;
    setText(
      foot,
      model.sensors
        ? ['running', 'waiting', 'failed']
            .filter(number)
            .map((state) => `${number(state)} ${state}`)
            .join(', ') ||
            'No virtual sensor yet. A TOML file in the folder of sensors makes one at once.'
        : 'reading …',
    );
    replace(trouble, errors.sensors ? problem(errors.sensors) : null);
  }

  function tick() {
    for (const node of list.children) {
      const buffer = live.buffer(node.chappeName);
      setText(node.chappeRow.newest, newestText(buffer));
      node.chappeRow.newest.className = alarmed(buffer) ? 'old' : '';
      node.chappeRow.side.hidden = !buffer.newest;
    }
  }
  fill();
  tick();
  return {
    changed: (kind) => kind === 'sensors' && fill(),
    tick,
    streams: () => [...sparks.keys()],
    close: () => sparks.forEach((line) => line.end()),
  };
}

function failure(error) {
  if (!error) return null;
  if (typeof error === 'string') return problem({ title: error });
  const place = [error.file, error.line ? `line ${error.line}` : null, error.key]
    .filter(Boolean)
    .join(', ');
  return problem({
    title: error.message ?? error.title ?? 'failed',
    detail: [place, error.detail].filter(Boolean).join(': '),
    hint: error.hint,
  });
}

/** The choices of a source with a fallback, in order of preference. */
function choices(one) {
  const all = one.choices ?? [];
  if (!all.length) return null;
  const text = (choice) => {
    const use = choice.is_used ? ', in use' : '';
    const when = choice.delivered_at
      ? `delivered ${moment(choice.delivered_at)}`
      : 'has not delivered';
    return `${choice.choice}: ${when}${use}`;
  };
  return h(
    'ol',
    null,
    all.map((choice) => h('li', null, text(choice))),
  );
}

/** The commands of a sensor with their arguments. */
function commands(shown) {
  const all = shown.commands ?? [];
  if (!all.length) return null;
  const argument = (one) => `${one.name} (${one.type}${one.required ? ', required' : ''})`;
  const rows = all.map((one) => [
    h('code', null, one.name),
    one.fields.map(argument).join(', ') || '–',
    h('a', { href: `#/streams/${encodeURIComponent(one.stream)}` }, one.stream),
  ]);
  return h(
    'section',
    null,
    h('h2', null, 'Commands'),
    table('Commands', ['command', 'arguments', 'calls'], rows),
    h('p', { class: 'quiet' }, `chappe sensor call ${shown.name} COMMAND NAME=VALUE`),
  );
}

function source(one) {
  const bound = one.bound ?? [];
  return h(
    'li',
    { 'data-bound': bound.length ? 'yes' : 'no' },
    h(
      'p',
      null,
      h('b', null, one.alias),
      ' is ',
      one.query
        ? [
            'whatever fits ',
            h('code', null, typeof one.query === 'string' ? one.query : JSON.stringify(one.query)),
          ]
        : ['the stream ', h('code', null, one.stream ?? '–')],
    ),
    choices(one),
    bound.map((b) =>
      h(
        'p',
        null,
        'bound to ',
        h('a', { href: `#/streams/${encodeURIComponent(b.stream)}` }, b.stream),
        ` since ${moment(b.since)}`,
        b.why ? h('small', { class: 'each' }, `because ${b.why}`) : null,
      ),
    ),
    bound.length
      ? null
      : h('p', null, h('b', null, 'not bound'), `: ${one.unbound_reason ?? 'nothing fits'}`),
  );
}

function openOne(root, name) {
  const head = h('div');
  const now = h('p', { class: 'lead' });
  const body = h('div');
  const output = sensor(name)?.stream ?? name;
  const line = spark(live.buffer(output));
  before(output, 60);
  const strip = h('div', { class: 'bar strip' }, now, line.node);
  // Outside the body, which is replaced with each change of the sensor.
  const edited = h('section');
  let drawn = null;
  replace(
    root,
    h('p', { class: 'crumb' }, h('a', { href: '#/sensors' }, 'Virtual sensors')),
    head,
    strip,
    body,
    edited,
  );

  function edit(one) {
    if (edited.firstChild || !one.toml) return;
    // A descriptor of GSN in XML is changed in its own format.
    const isToml = one.file.endsWith('.toml');
    const shown = isToml ? editor(one.toml) : h('pre', { class: 'code' }, one.toml);
    replace(edited, h('details', null, h('summary', null, `The file ${one.file}`), shown));
  }

  function fill() {
    const one = sensor(name);
    if (!one) {
      if (model.sensors) replace(head, h('h1', null, 'No such virtual sensor'));
      return;
    }
    const state = JSON.stringify(one);
    if (state === drawn) return;
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
        one.state === 'waiting' ? `: ${waitingFor(one)}` : '',
      ),
      failure(one.error),
    );
    replace(body, details(one));
    edit(one);
  }

  function details(shown) {
    const fields = (shown.output ?? shown.fields ?? []).map((f) => [
      f.name,
      f.type,
      unit(f.unit) || f.unit || '–',
      f.observed_property
        ? h('code', { title: f.observed_property }, short(f.observed_property))
        : '–',
    ]);
    const history = [...(shown.history ?? [])].reverse().map((one) => [moment(one.at), one.what]);
    return [
      h(
        'section',
        null,
        h('h2', null, 'Sources'),
        (shown.sources ?? []).length
          ? h('ul', { class: 'sources' }, shown.sources.map(source))
          : h('p', { class: 'quiet' }, 'None could be read from its file.'),
      ),
      h(
        'div',
        { class: 'two' },
        h('section', null, h('h2', null, 'Query'), sqlText(shown.sql)),
        h(
          'section',
          null,
          h('h2', null, 'Window and output'),
          facts([
            [
              'window',
              typeof shown.window === 'string'
                ? shown.window
                : shown.window && JSON.stringify(shown.window),
            ],
            ['evaluation', shown.plan],
            ['not used', reasons(shown.dropped)],
            ['file', h('code', null, shown.file ?? '–')],
            ['stream', h('a', { href: `#/streams/${encodeURIComponent(output)}` }, output)],
          ]),
          fields.length ? table('Output', ['field', 'type', 'unit', 'observes'], fields) : null,
        ),
      ),
      commands(shown),
      h(
        'section',
        null,
        h('h2', null, 'Past bindings'),
        history.length
          ? table('History of bindings', ['time', 'change'], history)
          : h('p', { class: 'quiet' }, 'It was never bound.'),
      ),
    ];
  }

  function tick() {
    const buffer = live.buffer(output);
    strip.hidden = !buffer.newest;
    setText(now, newestText(buffer));
    now.classList.toggle('old', alarmed(buffer));
    if (buffer.newest) now.title = `${since(buffer.newest.source_time)} ago`;
  }
  fill();
  tick();
  return {
    changed: (kind) => kind === 'sensors' && fill(),
    tick,
    streams: () => [output],
    close: () => line.end(),
  };
}
