// Goal: what the console remembers is what was sent: the ring of points equals a plain list cut to
// its length, elements are not doubled after a resume, a rollback forgets, gaps stay gaps, and
// values are written as people read them.
// Method: the modules without a browser, beside a naive model, from a fixed seed.

import assert from 'node:assert/strict';
import test from 'node:test';

const folder =
  process.env.CONSOLE ?? new URL('../../crates/node/console', import.meta.url).pathname;
const from = (name) => import(`${folder}/${name}`);
const { Ring } = await from('ring.js');
const { StreamBuffer } = await from('buffer.js');
const { EventParser } = await from('events.js');
const format = await from('format.js');
const drawing = await from('link-layout.js');
const topics = await from('topic-words.js');
const answers = await from('answer-words.js');
const times = await from('time-window.js');
const bands = await from('band-words.js');
const entities = await from('entity-words.js');
globalThis.sessionStorage ??= { getItem: () => null, setItem: () => {} };
const sensorEditor = await from('sensor-editor.js');

function random(seed) {
  let state = seed;
  return () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return state / 2 ** 32;
  };
}

test('a ring is a list that forgets its oldest', () => {
  for (const most of [1, 7, 256, 300, 1000]) {
    const ring = new Ring(2, most);
    const list = [];
    const next = random(most);
    let time = 0;
    for (let step = 0; step < 3000; step += 1) {
      time += next() - 0.1;
      const isLate = list.length > 0 && time < list.at(-1)[0];
      const point = [time, next(), -step];
      assert.equal(ring.push(time, point.slice(1)), !isLate);
      if (!isLate) list.push(point);
      if (list.length > most) list.shift();
      if (step % 97 !== 0) continue;
      const [times, first, second] = ring.tail(most);
      assert.deepEqual(
        [...times],
        list.map((one) => one[0]),
      );
      assert.deepEqual(
        [...first],
        list.map((one) => one[1]),
      );
      assert.deepEqual(
        [...second],
        list.map((one) => one[2]),
      );
      const [low, high] = [list[0][0] + next() * 5, list[0][0] + next() * 50];
      const [seen] = ring.view(low, high);
      for (const [at] of list.filter(([one]) => one >= low && one < high)) {
        assert.ok(seen.includes(at), `${at} is within the view`);
      }
      assert.ok(seen.filter((one) => one < low || one > high).length <= 2 || low >= high);
    }
    assert.ok(ring.late > 0);
  }
});

const FIELDS = [
  { name: 'rate', type: 'double', unit: '/min' },
  { name: 'wave', type: 'samples', unit: 'uV' },
];

function element(number, epoch = 'a', values = { rate: number }) {
  const at = new Date(1e12 + number * 1000).toISOString();
  return { epoch, number, source_time: at, receive_time: at, quality: 'good', values };
}

test('an element is taken once, whatever comes again', () => {
  const buffer = new StreamBuffer('s');
  assert.ok(buffer.take(element(1)));
  buffer.describe(FIELDS);
  assert.ok(buffer.take(element(2)));
  assert.ok(!buffer.take(element(2)), 'sent again after a resume');
  assert.ok(!buffer.take(element(1)));
  assert.ok(buffer.take(element(3, 'b')), 'a new lineage');
  assert.deepEqual([...buffer.ring.tail(9)[1]], [1, 2, 3]);
  buffer.backfill([element(0), element(1), element(2)]);
  assert.equal(buffer.recent.length, 4);
  assert.deepEqual([...buffer.ring.tail(9)[1]], [0, 1, 2, 3]);
  buffer.rollback();
  assert.equal(buffer.newest, null);
  assert.ok(buffer.take(element(1)));
  assert.deepEqual([...buffer.ring.tail(9)[1]], [1]);
});

test('stretches of a waveform join, and a gap stays a gap', () => {
  const buffer = new StreamBuffer('s');
  buffer.describe(FIELDS);
  const stretch = (number, atMs) =>
    element(number, 'a', {
      wave: { start: new Date(1e12 + atMs).toISOString(), period_s: 0.1, values: [1, 2, 3, 4, 5] },
    });
  buffer.take(stretch(1, 0));
  buffer.take(stretch(2, 500));
  buffer.take(stretch(3, 999)); // a rounded start
  buffer.take(stretch(4, 3000));
  const [times, values] = buffer.waves.get('wave').ring.tail(99);
  assert.equal(values.filter((one) => !Number.isNaN(one)).length, 20);
  assert.equal(
    values.findIndex((one) => Number.isNaN(one)),
    15,
  );
  assert.ok(times.every((one, index) => index === 0 || one >= times[index - 1]));
});

test('events are the same however the text is cut', () => {
  const text =
    ': hello\r\n\r\nretry: 1000\nevent: elements\nid: s@a:1\ndata: {"a":\ndata: 1}\n\n' +
    'data:x\r\rid: 2\n\nevent: notice\rdata: é\r\n\r\nevent: cut off\ndata: y\n';
  const expected = [
    { type: 'elements', id: 's@a:1', data: '{"a":\n1}' },
    { type: 'message', id: null, data: 'x' },
    { type: 'notice', id: null, data: 'é' },
  ];
  const next = random(7);
  for (let round = 0; round < 200; round += 1) {
    const seen = [];
    const parser = new EventParser((event) => seen.push(event));
    for (let at = 0; at < text.length;) {
      const end = at + 1 + Math.floor(next() * (round === 0 ? text.length : 9));
      parser.push(text.slice(at, end));
      at = end;
    }
    assert.deepEqual(seen, expected);
  }
});

test('values are written as people read them', () => {
  assert.equal(format.number(-0.5), '−0.5');
  assert.equal(format.number(123456), '123456');
  assert.equal(format.number(1 / 3), '0.33333');
  assert.equal(format.number(NaN), '–');
  assert.equal(format.unit('Cel'), '°C');
  assert.equal(format.unit('{beats}/min'), 'beats/min');
  assert.equal(format.age(59_999), '59 s');
  assert.equal(format.age(NaN), '–');
  assert.equal(format.bytes(1536), '1.5 KiB');
  assert.equal(format.short('urn:oid:1.2.840.10004.1.1.1.0.0.1.131330'), 'MDC 131330');
  assert.equal(format.short('http://vocab.nerc.ac.uk/standard_name/wind_speed/'), 'wind_speed');
  assert.equal(format.local('{urn:x}Thermometer'), 'Thermometer');
  assert.equal(format.value({ values: [3, -1] }, 'uV'), '2 samples, −1 to 3 µV');
});

test('the picture of links has a place for everyone, at both widths', () => {
  for (const width of [360, 500, 640, 1000, 1600]) {
    for (const [origins, readers] of [
      [0, 0],
      [1, 0],
      [0, 3],
      [5, 2],
      [12, 12],
    ]) {
      const places = drawing.layout(width, origins, readers);
      const all = [...places.origins, places.self, ...places.readers];
      assert.equal(all.length, origins + 1 + readers);
      for (const [index, one] of all.entries()) {
        assert.ok(one.x >= 0 && one.x + one.width <= width, `${width}: ${one.x}`);
        assert.ok(one.y >= 0 && one.y + one.height <= places.height, `${places.height}: ${one.y}`);
        for (const other of all.slice(index + 1)) {
          const apart =
            one.x + one.width <= other.x ||
            other.x + other.width <= one.x ||
            one.y + one.height <= other.y ||
            other.y + other.height <= one.y;
          assert.ok(apart, `${width}, ${origins}, ${readers}: two stations lie on each other`);
        }
      }
    }
  }
});

test('a line shows its rate and its lag', () => {
  const line = { state: 'connected', perSecond: 12, lag: 0, lagSeconds: 0.2 };
  assert.equal(drawing.caption(line), '12/s');
  assert.equal(drawing.caption({ ...line, lagSeconds: 3 }), '12/s · 3 s late');
  assert.equal(drawing.caption({ ...line, lag: 1200, lagSeconds: 61 }), '12/s · lag 1,200, 1 min');
  assert.equal(drawing.caption({ ...line, state: 'waiting' }), 'waiting');
  assert.equal(drawing.speed(0), 0);
  assert.ok(drawing.speed(1) < drawing.speed(1000) && drawing.speed(1e9) <= 90);
  assert.ok(drawing.thickness(null) < drawing.thickness(100) && drawing.thickness(1e9) <= 6);
});

test('a topic says its quality of service, its pace and what is wrong with it', () => {
  const qos = {
    reliability: 'best_effort',
    durability: 'transient_local',
    keep_last: 0,
    deadline_ms: 1500,
    max_samples: 64,
  };
  const words = 'best effort, transient local, keeps all of 64, deadline 1,500 ms';
  assert.equal(topics.quality(qos), words);
  assert.equal(
    topics.quality({ ...qos, reliability: 'reliable', keep_last: 3, deadline_ms: 0 }),
    'reliable, transient local, keeps last 3 of 64',
  );
  const well = { stalled: false, given_up: 0, deadlines_missed: 0, mismatches: 0 };
  assert.equal(topics.troubles(well), '');
  assert.equal(
    topics.troubles({ ...well, stalled: true, given_up: 1200, mismatches: 2 }),
    'a reader acknowledges nothing; 1,200 given up; 2 not fitting',
  );
  assert.equal(topics.troubles({ lost: 3, deadlines_missed: 1, mismatches: 0 }), '3 lost; 1 deadlines missed');
  assert.equal(format.paced('holding', 0.00125), 'holding, every 1.25 ms');
  assert.equal(format.paced('idle', 0), 'idle');
});

test('the page of topics asks for a look when a reader is silent, does not fit, or all is given up', () => {
  const topicsOf = (state, writer) => ({
    participant: { state, writers: [writer], readers: [] },
    publications: [{}],
    subscriptions: [{}, {}],
  });
  const well = { stalled: false, mismatches: 0 };
  assert.equal(topics.needsLook(null), false);
  assert.equal(topics.needsLook({ participant: null }), false);
  assert.equal(topics.needsLook(topicsOf('running', well)), false);
  assert.equal(topics.needsLook(topicsOf('given_up', well)), true);
  assert.equal(topics.needsLook(topicsOf('running', { ...well, stalled: true })), true);
  assert.equal(topics.needsLook(topicsOf('running', { ...well, mismatches: 1 })), true);
  assert.equal(topics.named(topicsOf('running', well)), 3);
  assert.equal(topics.named({ participant: null, publications: [], subscriptions: [] }), null);
});

test('an answer to SQL says what it lacks', () => {
  const whole = { stream: 'a', elements: 5, kept: 5, complete: true, damaged: 0 };
  assert.deepEqual(answers.lacks({ read: [whole], rows: [[1]], truncated: false }), []);
  assert.deepEqual(answers.lacks({ read: [], rows: [], truncated: false }), []);
  const cut = { ...whole, elements: 100000, kept: 150000, complete: false, damaged: 3 };
  assert.deepEqual(answers.lacks({ read: [whole, cut], rows: [[1], [2]], truncated: true }), [
    'Only the newest 100,000 of 150,000 elements of a were read.',
    'Up to 3 damaged elements of a are missing.',
    'More than these 2 rows exist.',
  ]);
});

test('a window of time stays within what is kept', () => {
  const bounds = [100, 200];
  assert.deepEqual(times.within([50, 60], bounds), [100, 110]);
  assert.deepEqual(times.within([195, 215], bounds), [180, 200]);
  assert.deepEqual(times.within([0, 1000], bounds), [100, 200]);
  assert.deepEqual(times.zoom([120, 140], 0.5, 125, bounds), [122.5, 132.5]);
  assert.deepEqual(times.zoom([120, 140], 100, 130, bounds), [100, 200]);
  assert.deepEqual(times.pan([120, 140], 0.5, bounds), [130, 150]);
  assert.deepEqual(times.pan([120, 140], -9, bounds), [100, 120]);
  const [from, to] = times.zoom([150, 150.001], 1e-9, 150, bounds);
  assert.ok(to > from, 'never empty');
  const next = random(3);
  let window = bounds;
  for (let step = 0; step < 1000; step += 1) {
    const at = window[0] + (window[1] - window[0]) * next();
    window = times.zoom(window, 0.5 + next(), at, bounds);
    window = times.pan(window, next() - 0.5, bounds);
    assert.ok(window[0] >= 100 && window[1] <= 200 + 1e-9 && window[0] < window[1]);
  }
});

test('buckets become columns with their gaps', () => {
  const range = {
    from: '1970-01-01T00:00:10Z',
    width_s: 2,
    count: [1, 0],
    fields: [{ name: 'v', mean: [1, null], min: [0, null], max: [2, null] }],
  };
  assert.deepEqual(times.columns(range, 'v'), [[11, 13], [1, null], [0, null], [2, null]]);
});

test('bands show losses and absences, and words say how many', () => {
  const whole = { lost: {}, refused: {}, away_s: 0, exact: true, gaps: [], away: [] };
  assert.deepEqual(bands.bandsOf(whole), []);
  assert.equal(bands.words(whole), '');
  const answer = {
    lost: { trimmed: { elements: 3, at_most: 3 }, damaged: { elements: 1, at_most: 2 } },
    refused: { dead_letter_schema: { elements: 2, at_most: 2 } },
    away_s: 12.4,
    exact: false,
    gaps: [{ kind: 'lost', from: null, to: '1970-01-01T00:00:09Z' }],
    away: [{ from: '1970-01-01T00:00:10Z', to: null }],
  };
  assert.deepEqual(bands.bandsOf(answer), [
    { kind: 'away', from: 10, to: Infinity },
    { kind: 'lost', from: -Infinity, to: 9 },
  ]);
  assert.equal(
    bands.words(answer),
    '4 elements lost (trimmed, damaged), 2 refused, source away for 12 s, not exact',
  );
});

test('facets lead to the search that has the value, and back', () => {
  const values = (...pairs) => ({
    values: pairs.map(([value, count]) => ({ value, count })),
    distinct: pairs.length,
  });
  const answer = {
    entities: 5,
    is_complete: true,
    kind: values(['device', 5]),
    type: { ...values(['{urn:p}Pump', 3], ['{urn:p}Valve', 2]), distinct: 7 },
    owner: values(['ada', 4], ['bob', 1]),
    observed_property: values(),
    category: { values: [{ value: 'red', taxonomy: 'urn:t', count: 2 }], distinct: 1 },
  };
  const criteria = Object.fromEntries(entities.CRITERIA.map((name) => [name, '']));
  const found = entities.facets(answer, criteria);
  // What every entity has is no choice.
  assert.deepEqual(found.map((one) => one.name), ['type', 'owner', 'category']);
  const [types, , categories] = found;
  assert.equal(types.hidden, 5);
  assert.equal(types.items[0].next.type, '{urn:p}Pump');
  assert.deepEqual(
    [categories.items[0].next.category, categories.items[0].next.taxonomy],
    ['red', 'urn:t'],
  );
  const chosen = entities.facets(answer, categories.items[0].next);
  const item = chosen.find((one) => one.name === 'category').items[0];
  assert.ok(item.isChosen);
  assert.deepEqual([item.next.category, item.next.taxonomy], ['', '']);
  assert.equal(entities.shownOf(3, answer, 'x'), '3 of 5 are shown');
  assert.equal(entities.shownOf(3, { entities: 5, is_complete: false }, 'x'), '3 of more than 5 are shown');
  assert.equal(entities.shownOf(3, undefined, 'x'), '3 are shown, there are more');
  assert.equal(entities.shownOf(3, answer, null), '3 found, all are shown');
});

test('rights are read from texts, and what is not stated stays so', () => {
  const texts = { read: 'everybody, account:ada', annotate: 'x', write: ' group:ward ', administer: '' };
  assert.deepEqual(entities.stated(texts, false), {
    read: ['everybody', 'account:ada'],
    annotate: null,
    write: ['group:ward'],
    administer: [],
  });
  assert.deepEqual(entities.stated(texts, true).annotate, ['x']);
  const piece = { author: 'ada', writers: ['account:cleo'] };
  const may = (name, ...roles) => entities.mayChange(piece, { name, roles });
  assert.ok(may('ada', 'write') && may('cleo', 'write') && may('operator', 'administer'));
  assert.ok(!may('ada', 'read') && !may('bob', 'write') && !entities.mayChange(piece, null));
});

test('a change of the history says what differs, or that it is not known', () => {
  const of = (change, differences = null) => entities.changeWords({ change, differences });
  const none = { fields: [], added_count: 0, removed_count: 0 };
  assert.equal(of('appeared'), 'published, or became visible');
  assert.equal(of('changed'), 'changed; what differs is no longer known');
  assert.equal(of('changed', none), 'changed: published again as it was');
  assert.equal(
    of('changed', { fields: ['name'], added_count: 2, removed_count: 1 }),
    'changed: name, 2 properties added, 1 property removed',
  );
  assert.match(entities.beginning({ is_cut: true, begins_at: 9 }, null), /at position 9/);
  assert.match(entities.beginning({ is_cut: true, begins_at: 9 }, '10:00:00'), /at 10:00:00/);
  assert.match(entities.beginning({ is_cut: false }), /whole/);
});

test('names and descriptions have their languages', () => {
  const triple = (predicate, object, language) => ({
    predicate: `https://chappe.example/ns/uddi#${predicate}`,
    object,
    object_kind: 'literal',
    language,
  });
  const entity = {
    name: 'Pump',
    triples: [
      triple('name', 'Pump'),
      triple('name', 'Pumpe', 'de'),
      triple('description', 'Moves water', 'en'),
      { ...triple('description', 'of a contact'), subject: '_:c' },
      { ...triple('name', 'urn:x'), object_kind: 'iri' },
    ],
  };
  assert.deepEqual(entities.names(entity), ['Pumpe (de)']);
  assert.deepEqual(entities.descriptions(entity), ['Moves water (en)']);
});

test('neighbours lie in the picture, apart from each other and from the entity', () => {
  const next = random(7);
  for (const width of [260, 368, 620, 1000]) {
    for (let round = 0; round < 40; round += 1) {
      const neighbours = Array.from({ length: Math.floor(next() * 17) }, (_, index) => ({
        key: `urn:${index}`,
        named_by: next() < 0.5 ? ['urn:p'] : [],
        names: next() < 0.7 ? ['urn:q'] : [],
      }));
      const { places, self, height } = entities.layout(width, neighbours);
      const boxes = [self, ...places.values()];
      assert.equal(boxes.length, neighbours.length + 1);
      for (const [index, box] of boxes.entries()) {
        assert.ok(box.x >= 0 && box.x + box.width <= width + 0.01, `${width}: ${JSON.stringify(box)}`);
        assert.ok(box.y >= 0 && box.y + box.height <= height + 0.01);
        for (const other of boxes.slice(index + 1)) {
          const isApart =
            box.x + box.width <= other.x ||
            other.x + other.width <= box.x ||
            box.y + box.height <= other.y ||
            other.y + other.height <= box.y;
          assert.ok(isApart, `${width}: ${JSON.stringify([box, other])}`);
        }
      }
    }
  }
});

test('a preview is a table of inputs and their results', () => {
  const element = (source_time, values) => ({ source_time, values });
  const steps = [
    { source: 'a', element: element('2026-11-21T10:00:00Z', { x: 1 }), outputs: [] },
    {
      source: null,
      element: null,
      outputs: [
        element('2026-11-21T10:00:01Z', { y: 2 }),
        element('2026-11-21T10:00:02Z', { y: null }),
      ],
    },
  ];
  const rows = sensorEditor.previewRows(steps, true).map((row) => row.slice(1));
  assert.deepEqual(rows, [
    ['a: x 1', ''],
    ['(silence)', 'y 2'],
    ['', 'y –'],
  ]);
  const named = ['name = "a.b" # c\n', "# name = 'x'\n name='y'", '[output]\nname = "z"', ''];
  assert.deepEqual(named.map(sensorEditor.nameIn), ['a.b', 'y', null, null]);
});
