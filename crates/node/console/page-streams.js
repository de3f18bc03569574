// Streams: all of them with rate, age and their last stretch; one of them with live charts; and SQL
// over what is stored.

import { lacks } from './answer-words.js';
import * as api from './api.js';
import { Bands } from './bands.js';
import { Chart } from './chart.js';
import { facts, h, keyed, problem, replace, setAttribute, setText, table } from './dom.js';
import { age, clock, count, moment, number, rate, short, unit, value } from './format.js';
import { before } from './history.js';
import * as live from './live.js';
import { errors, model, producer, refresh, stream } from './model.js';
import { newestText } from './page-overview.js';
import { RangeCharts } from './range-chart.js';
import { spark } from './spark.js';

const SPARK_POINTS = 60;
const DETAIL_POINTS = 300;
const TABLE_ROWS = 12;
const LIST_MOST = 200;
const SPANS = [
  [5, '5 s'],
  [10, '10 s'],
  [30, '30 s'],
  [60, '1 min'],
  [300, '5 min'],
  [1800, '30 min'],
];
const SQL_ROWS = 200;
const LEAST_TIME_NS = 1e17;

/** Opens the list, one stream, or the SQL page. */
export function open(root, at) {
  if (at.subject) return openOne(root, at.subject);
  if (at.query.get('view') === 'sql') return openSql(root, at.query.get('sql'));
  return openList(root);
}

function tabs(view) {
  const tab = (href, label, name) =>
    h('a', { href, 'aria-current': view === name ? 'page' : null }, label);
  return h(
    'nav',
    { class: 'tabs', 'aria-label': 'Views of streams' },
    tab('#/streams', 'All streams', 'list'),
    tab('#/streams?view=sql', 'SQL', 'sql'),
  );
}

function openList(root) {
  const foot = h('p', { class: 'foot' });
  const list = h('ul', { class: 'rows streams' });
  const filter = h('input', {
    type: 'search',
    placeholder: 'name, source or observed property',
    oninput: fill,
  });
  const trouble = h('div');
  const sparks = new Map();
  replace(
    root,
    h('h1', null, 'Streams'),
    tabs('list'),
    trouble,
    h(
      'div',
      { class: 'bar' },
      h('label', { class: 'grow' }, h('span', { class: 'unseen' }, 'Filter'), filter),
      foot,
    ),
    list,
  );

  function create(one) {
    const row = {
      from: h('small'),
      newest: h('span', { class: 'newest' }),
      rate: h('span'),
      age: h('small'),
    };
    const buffer = live.buffer(one.name);
    const line = spark(buffer);
    before(one.name, SPARK_POINTS);
    sparks.set(one.name, line);
    const node = h(
      'li',
      null,
      h(
        'div',
        null,
        h('a', { href: `#/streams/${encodeURIComponent(one.name)}` }, h('b', null, one.name)),
        row.from,
      ),
      row.newest,
      line.node,
      h('div', { class: 'pace' }, row.rate, row.age),
    );
    node.chappeRow = row;
    return node;
  }

  function update(node, one) {
    const row = node.chappeRow;
    setText(row.from, `from ${producer(one).name}`);
    setText(row.rate, rate(one.rate_per_s));
    pace(row, one);
  }

  function fill() {
    const word = filter.value.trim().toLowerCase();
    const all = model.streams ?? [];
    const found = all.filter(
      (one) =>
        !word ||
        one.name.toLowerCase().includes(word) ||
        producer(one).name.toLowerCase().includes(word) ||
        (one.fields ?? []).some((f) => (f.observed_property ?? '').toLowerCase().includes(word)),
    );
    keyed(list, found.slice(0, LIST_MOST), (one) => one.name, create, update);
    for (const [name, line] of sparks) {
      if (line.node.isConnected) continue;
      line.end();
      sparks.delete(name);
    }
    const shown =
      found.length > LIST_MOST
        ? `the first ${LIST_MOST} of ${count(found.length)}`
        : count(found.length);
    setText(foot, model.streams ? `${shown} of ${count(all.length)} streams` : 'reading …');
    replace(trouble, errors.streams ? problem(errors.streams) : null);
  }

  function tick() {
    for (const node of list.children) {
      const name = node.querySelector('b').textContent;
      const one = stream(name);
      setText(node.chappeRow.newest, newestText(live.buffer(name)));
      if (one) pace(node.chappeRow, one);
    }
  }
  fill();
  tick();
  return {
    changed: (kind) => (kind === 'streams' || kind === 'devices') && fill(),
    tick,
    streams: () => [...sparks.keys()],
    close: () => sparks.forEach((line) => line.end()),
  };
}

/**
 * Shows the age of the newest element; one that is much older than the rate lets expect is marked.
 */
function pace(row, one) {
  const heard = live.buffer(one.name).heardAt;
  const old = heard
    ? Date.now() - heard
    : one.last_time
      ? Date.now() - Date.parse(one.last_time)
      : null;
  setText(row.age, old === null ? 'no element yet' : `${age(old)} ago`);
  const expected = one.rate_per_s > 0 ? 5000 / one.rate_per_s : Infinity;
  row.age.className = old > Math.max(5000, expected) ? 'old' : '';
}

function groups(buffer) {
  const found = [];
  for (const field of buffer.fields ?? []) {
    if (field.type === 'samples') found.push({ wave: true, fields: [field] });
  }
  const byUnit = new Map();
  for (const field of buffer.scalars) {
    const key = `${field.type === 'boolean'} ${field.unit ?? ''}`;
    byUnit.set(key, [...(byUnit.get(key) ?? []), field]);
  }
  for (const fields of byUnit.values()) found.push({ wave: false, fields });
  return found;
}

function openOne(root, name) {
  const buffer = live.buffer(name);
  const hasWave = () => (buffer.fields ?? []).some((f) => f.type === 'samples');
  const control = { paused: false, seconds: 60 };
  const bands = new Bands(name, control);
  const stamp = h('span', { class: 'stamp', role: 'status' });
  const lead = h('p', { class: 'lead' });
  const charts = h('div', { class: 'charts' });
  const past = h('div');
  const values = h('section');
  const about = h('section');
  const naming = renaming();
  let history = null;
  const pause = h(
    'button',
    { type: 'button', 'aria-pressed': 'false', onclick: () => setPaused(!control.paused) },
    'Pause',
  );
  const choice = h(
    'div',
    { class: 'choice', role: 'group', 'aria-label': 'Width of time' },
    SPANS.map(([seconds, label]) =>
      h(
        'button',
        { type: 'button', 'data-seconds': seconds, onclick: () => setSpan(seconds) },
        label,
      ),
    ),
  );
  replace(
    root,
    h('p', { class: 'crumb' }, h('a', { href: '#/streams' }, 'Streams')),
    h('h1', null, name),
    lead,
    h('div', { class: 'bar' }, pause, choice, stamp),
    charts,
    past,
    bands.node,
    values,
    about,
    naming.node,
  );
  const onKey = (event) => {
    if (event.key !== ' ' || !event.target.closest?.('.plot')) return;
    event.preventDefault();
    setPaused(!control.paused);
  };
  root.addEventListener('keydown', onKey);
  let drawn = [];
  let described = null;
  let pausedAt = 0;

  function setPaused(paused) {
    control.paused = paused;
    pausedAt = buffer.seen;
    setAttribute(pause, 'aria-pressed', paused ? 'true' : 'false');
    setText(pause, paused ? 'Go on' : 'Pause');
    setText(stamp, paused ? `paused at ${clock(Date.now())}` : '');
    drawn.forEach((chart) => chart.touch());
  }

  function setSpan(seconds) {
    control.seconds = seconds;
    for (const button of choice.children) {
      setAttribute(
        button,
        'aria-pressed',
        Number(button.dataset.seconds) === seconds ? 'true' : 'false',
      );
    }
    drawn.forEach((chart) => chart.touch());
  }

  function fill() {
    const one = stream(name);
    if (!one) {
      if (model.streams) setText(lead, 'No stream of this name is on this node.');
      return;
    }
    if (one.name !== name) {
      location.replace(`#/streams/${encodeURIComponent(one.name)}`);
      return;
    }
    if (described === buffer.fields) {
      fillAbout(one);
      return;
    }
    const first = described === null;
    described = buffer.fields;
    drawn.forEach((chart) => chart.destroy());
    drawn = groups(buffer).map(
      (group) =>
        new Chart({
          buffer,
          control,
          ...group,
          title: `${name}, ${group.fields.map((f) => f.name).join(', ')}`,
        }),
    );
    replace(
      charts,
      drawn.map((chart) => chart.node),
    );
    if (drawn.length && !history) {
      history = new RangeCharts(name);
      replace(past, history.node);
    }
    if (first) {
      setSpan(hasWave() ? 10 : 60);
      before(name, hasWave() ? 60 : DETAIL_POINTS);
    }
    fillAbout(one);
  }

  function fillAbout(one) {
    const from = producer(one);
    naming.show(one);
    const state = JSON.stringify([
      one.name,
      one.former_names,
      one.fields,
      one.level,
      one.epoch,
      one.source,
      from,
    ]);
    const pieces = [
      `${rate(one.rate_per_s)}, ${count(one.last - one.first + 1)} elements kept, newest `,
    ];
    const heard = buffer.heardAt ?? (one.last_time ? Date.parse(one.last_time) : null);
    setText(lead, pieces[0] + (heard ? `${age(Date.now() - heard)} ago` : 'not yet'));
    if (about.chappeState === state) return;
    about.chappeState = state;
    replace(
      about,
      h(
        'div',
        { class: 'two' },
        h(
          'section',
          null,
          h('h2', null, 'Origin'),
          facts([
            [from.kind, from.href ? h('a', { href: from.href }, from.name) : from.name],
            ['level', `${one.level}: ${LEVELS[one.level] ?? ''}`],
            ['former names', (one.former_names ?? []).join(', ') || null],
            ['epoch', h('code', null, one.epoch)],
            ['key', one.entity ? one.key : null],
            [
              'registry',
              h(
                'a',
                { href: `#/registry/${encodeURIComponent(one.entity ?? one.key)}` },
                'metadata',
              ),
            ],
          ]),
        ),
        h(
          'section',
          null,
          h('h2', null, 'Fields'),
          h(
            'div',
            { class: 'fields' },
            (one.fields ?? []).map((f) =>
              h(
                'p',
                null,
                h('b', null, f.name),
                ` ${f.type}`,
                f.unit ? `, ${unit(f.unit) || f.unit}` : '',
                f.unit ? h('small', null, ` (UCUM ${f.unit})`) : null,
                f.observed_property
                  ? h(
                      'small',
                      { class: 'each', title: f.observed_property },
                      `observes ${short(f.observed_property)}: `,
                      h('code', null, f.observed_property),
                    )
                  : null,
                f.description ? h('small', { class: 'each' }, f.description) : null,
              ),
            ),
          ),
        ),
      ),
    );
  }

  function fillValues() {
    if (control.paused) {
      setText(
        stamp,
        `${stamp.textContent.split(',')[0]}, ${count(buffer.seen - pausedAt)} elements since`,
      );
      return;
    }
    if (!buffer.fields) return;
    const fields = buffer.fields;
    const isKeyed = buffer.recent.some((one) => one.key !== null && one.key !== undefined);
    const rows = buffer.recent
      .slice(-TABLE_ROWS)
      .reverse()
      .map((one) => [
        clock(one.source_time, 3),
        number(one.number),
        ...(isKeyed ? [one.key ?? ''] : []),
        ...fields.map((f) => value(one.values[f.name], f.unit)),
        one.quality,
      ]);
    replace(
      values,
      h('h2', null, 'Newest elements'),
      rows.length
        ? table(
            'Newest elements',
            [
              'time',
              'number',
              ...(isKeyed ? ['key'] : []),
              ...fields.map((f) => f.name),
              'quality',
            ],
            rows,
            'values',
          )
        : h('p', { class: 'quiet' }, 'No element yet.'),
    );
  }

  setSpan(60);
  fill();
  fillValues();
  return {
    changed: fill,
    tick() {
      fill();
      if (!values.contains(document.activeElement)) fillValues();
    },
    streams: () => [name],
    close() {
      root.removeEventListener('keydown', onKey);
      bands.end();
      drawn.forEach((chart) => chart.destroy());
      history?.destroy();
    },
  };
}

/** The form that gives a stream another name. */
function renaming() {
  const trouble = h('div');
  const box = h('input', { id: 'new-name', spellcheck: 'false', autocomplete: 'off' });
  let name = null;
  const form = h(
    'form',
    {
      class: 'bar',
      onsubmit: (event) => {
        event.preventDefault();
        rename();
      },
    },
    h('label', { class: 'grow', for: 'new-name' }, h('span', null, 'New name '), box),
    h('button', { type: 'submit' }, 'Rename'),
  );

  async function rename() {
    const wanted = box.value.trim();
    if (!wanted || wanted === name) return;
    try {
      await api.change('POST', api.path('streams', name, 'rename'), { name: wanted });
      replace(trouble);
      // The page then moves to the new name.
      await refresh('streams');
    } catch (error) {
      replace(trouble, problem(error));
    }
  }

  return {
    node: h(
      'section',
      null,
      h('h2', null, 'Name'),
      h('p', { class: 'quiet' }, 'A former name still refers to the stream.'),
      form,
      trouble,
    ),
    show(one) {
      if (name === one.name) return;
      name = one.name;
      box.value = name;
    },
  };
}

/** A cell of an answer; a column of times is in nanoseconds since 1970. */
function cellText(column, cell) {
  if (cell === null) return '–';
  if (typeof cell !== 'number') return String(cell);
  if (!/time$/.test(column) || cell < LEAST_TIME_NS) return number(cell);
  return h(
    'span',
    { title: `${cell} ns` },
    `${moment(cell / 1e6)}.${clock(cell / 1e6, 3).slice(-3)}`,
  );
}

/** The node's table name for a stream. */
function tableName(name) {
  return name.replace(/[^A-Za-z0-9]/g, '_');
}

const LEVELS = {
  memory: 'lost when the program ends',
  process: 'survives a kill of the program',
  power: 'survives a loss of power',
};

function openSql(root, given) {
  const first = () => {
    const one = (model.streams ?? []).find((s) =>
      (s.fields ?? []).some((f) => f.type === 'double'),
    );
    return one
      ? `select *\nfrom ${tableName(one.name)}\norder by sequence desc\nlimit 20`
      : 'select 1';
  };
  const box = h('textarea', {
    id: 'sql',
    spellcheck: 'false',
    rows: 6,
    'aria-label': 'SQL',
    onkeydown: (event) => (event.ctrlKey || event.metaKey) && event.key === 'Enter' && ask(),
  });
  box.value = given ?? first();
  // The example asks for the newest elements; for a given query the user decides.
  const partial = h('input', { type: 'checkbox', checked: given === null });
  const took = h('span', { class: 'stamp', role: 'status' });
  const answer = h('div');
  replace(
    root,
    h('h1', null, 'Streams'),
    tabs('sql'),
    h(
      'p',
      { class: 'quiet' },
      'Every stream is a table: its name with _ for dots and dashes. Nothing can be changed.',
    ),
    box,
    h(
      'div',
      { class: 'bar' },
      h('button', { class: 'main', type: 'button', onclick: ask }, 'Run'),
      h('small', null, 'Ctrl+Enter'),
      h('label', null, partial, ' at a limit of the node, answer in part'),
      took,
    ),
    answer,
  );

  async function ask() {
    const start = performance.now();
    setText(took, 'running …');
    try {
      const body = await api.sql(box.value, SQL_ROWS, partial.checked);
      const { columns, rows } = body;
      const ms = Math.round(performance.now() - start);
      setText(took, `${count(rows.length)} rows in ${ms} ms`);
      const missing = lacks(body);
      replace(
        answer,
        missing.length ? h('p', { class: 'partial', role: 'status' }, missing.join(' ')) : null,
        table(
          'Rows',
          columns,
          rows.map((row) => row.map((cell, index) => cellText(columns[index], cell))),
        ),
      );
    } catch (error) {
      setText(took, '');
      replace(answer, problem(error));
    }
  }
  // A query in the address may come from another site: only the reader starts it.
  let touched = given !== null;
  if (touched) setText(took, 'from the address, not run yet');
  else if (box.value !== 'select 1') ask();
  box.addEventListener('input', () => {
    touched = true;
  });
  return {
    changed(kind) {
      if (kind !== 'streams' || touched || box.value !== 'select 1') return;
      box.value = first();
      ask();
    },
    close() {},
  };
}
