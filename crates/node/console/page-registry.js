// The registry: search by name, type, scope and observed property; one entity with its triples;
// SPARQL.

import { path, query, read, sparql } from './api.js';
import { facts, h, problem, replace, setText, table } from './dom.js';
import { count, local, short } from './format.js';

const LIMIT = 100;
const SEARCH_DELAY_MS = 200;
const ROWS_MOST = 500;
const KINDS = ['node', 'device', 'service', 'stream', 'virtual-sensor', 'thing', 'other'];
const PAGES = { device: 'devices', stream: 'streams', 'virtual-sensor': 'sensors' };
const TERMS = [
  ['prefix', 'Name prefix', 'Electro'],
  ['type', 'Type', '{namespace}Name'],
  ['scope', 'Scope', 'https://…'],
  ['observed_property', 'Observed property', 'http://loinc.org/8867-4'],
];
const EXAMPLES = [
  [
    'every name and class',
    `PREFIX rdfs: <http://www.w3.org/2000/01/rdf-schema#>
SELECT ?thing ?name ?class WHERE {
  ?thing rdfs:label ?name ; a ?class
} LIMIT 100`,
  ],
  [
    'what is observed, in which unit',
    `PREFIX sosa: <http://www.w3.org/ns/sosa/>
PREFIX chappe: <https://chappe.example/ns#>
SELECT ?stream ?field ?property ?unit WHERE {
  ?stream chappe:field ?node .
  ?node chappe:fieldName ?field .
  OPTIONAL { ?node sosa:observedProperty ?property }
  OPTIONAL { ?node chappe:unit ?unit }
} LIMIT 100`,
  ],
  [
    'which device produces which stream',
    `PREFIX chappe: <https://chappe.example/ns#>
PREFIX rdfs: <http://www.w3.org/2000/01/rdf-schema#>
SELECT ?device ?name ?stream WHERE {
  ?stream chappe:producedBy ?device .
  ?device rdfs:label ?name
} LIMIT 100`,
  ],
  [
    'is there a heart rate?',
    `PREFIX sosa: <http://www.w3.org/ns/sosa/>
ASK { ?field sosa:observedProperty <http://loinc.org/8867-4> }`,
  ],
];

function entityHref(key) {
  return `#/registry/${encodeURIComponent(key)}`;
}

function tabs(view) {
  const tab = (href, label, name) =>
    h('a', { href, 'aria-current': view === name ? 'page' : null }, label);
  return h(
    'nav',
    { class: 'tabs', 'aria-label': 'Views of the registry' },
    tab('#/registry', 'Search', 'search'),
    tab('#/registry?view=sparql', 'SPARQL', 'sparql'),
  );
}

/** Opens the search, one entity, or SPARQL. */
export function open(root, at) {
  if (at.subject) return openOne(root, at.subject);
  if (at.query.get('view') === 'sparql') return openSparql(root, at.query.get('query'));
  return openSearch(root, at.query);
}

function openSearch(root, given) {
  let timer = null;
  let newest = 0;
  const later = () => {
    clearTimeout(timer);
    timer = setTimeout(search, SEARCH_DELAY_MS);
  };
  const inputs = Object.fromEntries(
    TERMS.map(([name, , example]) => [
      name,
      h('input', {
        type: 'search',
        name,
        value: given.get(name) ?? '',
        placeholder: example,
        oninput: later,
      }),
    ]),
  );
  inputs.kind = h(
    'select',
    { name: 'kind', onchange: search },
    h('option', { value: '' }, 'any'),
    KINDS.map((kind) => h('option', { value: kind, selected: given.get('kind') === kind }, kind)),
  );
  const label = (text, input) => h('label', null, h('span', null, text), input);
  const foot = h('p', { class: 'foot', role: 'status' });
  const found = h('div');
  replace(
    root,
    h('h1', null, 'Registry'),
    tabs('search'),
    h(
      'form',
      {
        class: 'search',
        onsubmit: (event) => {
          event.preventDefault();
          search();
        },
      },
      TERMS.map(([name, text]) => label(text, inputs[name])),
      label('Kind', inputs.kind),
      h('button', { class: 'unseen', type: 'submit' }, 'Search'),
    ),
    foot,
    found,
  );

  async function search() {
    const turn = (newest += 1);
    const terms = Object.fromEntries(
      Object.entries(inputs).map(([name, input]) => [name, input.value.trim()]),
    );
    history.replaceState(null, '', query('#/registry', terms));
    const start = performance.now();
    try {
      const { entities, truncated } = await read(
        query(path('entities'), { ...terms, limit: LIMIT }),
      );
      if (turn !== newest) return;
      const took = Math.round(performance.now() - start);
      setText(
        foot,
        `${truncated ? 'the first ' : ''}${count(entities.length)} found in ${took} ms`,
      );
      replace(
        found,
        entities.length
          ? table(
              'Entities',
              ['name', 'kind', 'types', 'scopes'],
              entities.map((one) => [
                [
                  h('a', { href: entityHref(one.key) }, one.name || one.key),
                  h('small', { class: 'each' }, one.key),
                ],
                one.kind,
                (one.types ?? []).map((type) =>
                  h('span', { class: 'name', title: type }, local(type)),
                ),
                (one.scopes ?? []).map((scope) => h('small', { class: 'each' }, scope)),
              ]),
              'stack',
            )
          : null,
      );
    } catch (error) {
      if (turn !== newest) return;
      setText(foot, '');
      replace(found, problem(error));
    }
  }
  search();
  return { close: () => clearTimeout(timer) };
}

/** A part of an entity by its field's name, where it has one. */
function partName(subject, triples) {
  const name = triples.find((one) => one.predicate.endsWith('#fieldName'));
  return name ? `field ${name.object}` : subject;
}

/** The triples about the entity itself, then those about each part of it, such as a field. */
function triplesBySubject(entity) {
  const groups = new Map([[null, []]]);
  for (const triple of entity.triples ?? []) {
    const subject = triple.subject ?? null;
    groups.set(subject, [...(groups.get(subject) ?? []), triple]);
  }
  return [...groups].filter(([, triples]) => triples.length);
}

function term(text, kind) {
  if (kind === 'iri') {
    return h('a', { href: entityHref(text), title: text }, text);
  }
  return kind === 'blank' ? h('small', null, text) : text;
}

function openOne(root, key) {
  const body = h('div');
  replace(root, h('p', { class: 'crumb' }, h('a', { href: '#/registry' }, 'Registry')), body);
  read(path('entities', key)).then(
    (one) => {
      const direct = PAGES[one.kind];
      const subject = one.kind === 'device' ? one.key : one.name;
      replace(
        body,
        h('h1', null, one.name || one.key),
        h(
          'div',
          { class: 'two' },
          facts([
            ['key', h('code', null, one.key)],
            ['kind', one.kind],
            ['owner', one.owner],
            ['types', (one.types ?? []).map((type) => h('code', null, type))],
            ['scopes', (one.scopes ?? []).map((scope) => h('code', null, scope))],
            [
              'page',
              direct
                ? h('a', { href: `#/${direct}/${encodeURIComponent(subject)}` }, 'state and data')
                : null,
            ],
          ]),
        ),
        h(
          'section',
          null,
          h('h2', null, `${count((one.triples ?? []).length)} triples`),
          triplesBySubject(one).map(([subject, triples]) => [
            subject ? h('h3', null, partName(subject, triples)) : null,
            table(
              `Triples about ${subject ?? 'the entity'}`,
              ['predicate', 'object'],
              triples.map((triple) => [
                [short(triple.predicate), h('small', { class: 'each' }, triple.predicate)],
                [
                  term(triple.object, triple.object_kind),
                  triple.datatype && !triple.datatype.endsWith('#string')
                    ? h('small', null, ` ${short(triple.datatype)}`)
                    : null,
                ],
              ]),
              'stack triples',
            ),
          ]),
        ),
      );
    },
    (error) => {
      const isMissing = error.status === 404;
      replace(
        body,
        h('h1', null, isMissing ? 'Not in the registry' : 'Registry'),
        h('p', null, h('code', null, key)),
        isMissing
          ? h(
              'p',
              { class: 'quiet' },
              'It may be a term of a vocabulary that entities refer to. ',
              h(
                'a',
                { href: query('#/registry', { observed_property: key }) },
                'Find entities that observe it',
              ),
            )
          : problem(error),
      );
    },
  );
  return { close() {} };
}

function cell(binding) {
  if (!binding) return '–';
  if (binding.type === 'uri') return h('a', { href: entityHref(binding.value) }, binding.value);
  return binding.value;
}

function openSparql(root, given) {
  const box = h('textarea', {
    spellcheck: 'false',
    rows: 9,
    'aria-label': 'SPARQL query',
    onkeydown: (event) => (event.ctrlKey || event.metaKey) && event.key === 'Enter' && ask(),
  });
  box.value = given ?? EXAMPLES[1][1];
  const choose = h(
    'select',
    {
      'aria-label': 'Examples',
      onchange: () => {
        const example = EXAMPLES[Number(choose.value)];
        if (example) {
          [, box.value] = example;
          ask();
        }
      },
    },
    h('option', { value: '' }, 'examples …'),
    EXAMPLES.map(([name], index) => h('option', { value: index }, name)),
  );
  const took = h('span', { class: 'stamp', role: 'status' });
  const answer = h('div');
  replace(
    root,
    h('h1', null, 'Registry'),
    tabs('sparql'),
    box,
    h(
      'div',
      { class: 'bar' },
      h('button', { class: 'main', type: 'button', onclick: ask }, 'Run'),
      h('small', null, 'Ctrl+Enter'),
      took,
      h('span', { class: 'push' }, choose),
    ),
    answer,
  );

  async function ask() {
    const start = performance.now();
    setText(took, 'running …');
    try {
      const body = await sparql(box.value);
      const ms = Math.round(performance.now() - start);
      if (typeof body.boolean === 'boolean') {
        setText(took, `in ${ms} ms`);
        replace(answer, h('p', { class: 'lead' }, h('b', null, body.boolean ? 'yes' : 'no')));
        return;
      }
      const rows = body.results?.bindings ?? [];
      setText(took, `${count(rows.length)} rows in ${ms} ms`);
      const names = body.head?.vars ?? [];
      replace(
        answer,
        table(
          'Results',
          names,
          rows.slice(0, ROWS_MOST).map((row) => names.map((name) => cell(row[name]))),
          'stack',
        ),
        rows.length > ROWS_MOST
          ? h('p', { class: 'foot' }, `the first ${ROWS_MOST} are shown`)
          : null,
      );
    } catch (error) {
      setText(took, '');
      replace(answer, problem(error));
    }
  }
  // A query in the address may come from another site: only the reader starts it.
  if (given === null) ask();
  else setText(took, 'from the address, not run yet');
  return { close() {} };
}
