// The registry: search by name, kind, type, scope, owner and observed property, with facets; SPARQL.

import { path, query, read, sparql } from './api.js';
import { h, problem, replace, setText, table } from './dom.js';
import { CRITERIA, facets, shownOf } from './entity-words.js';
import { count, local } from './format.js';
import { entityHref, openEntity } from './page-entity.js';

const LIMIT = 100;
const VALUES_FEW = 12;
const VALUES_MOST = 1000;
const SEARCH_DELAY_MS = 200;
const ROWS_MOST = 500;
const KINDS = [
  'node',
  'device',
  'service',
  'stream',
  'virtual-sensor',
  'thing',
  'document',
  'metadata',
  'other',
];
const TERMS = [
  ['prefix', 'Name prefix', 'Electro'],
  ['type', 'Type', '{namespace}Name'],
  ['scope', 'Scope', 'https://…'],
  ['observed_property', 'Observed property', 'http://loinc.org/8867-4'],
  ['owner', 'Owner or author', 'ada'],
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
  if (at.subject) return openEntity(root, at.subject);
  if (at.query.get('view') === 'sparql') return openSparql(root, at.query.get('query'));
  return openSearch(root, at.query);
}

function openSearch(root, given) {
  let timer = null;
  let newest = 0;
  let values = VALUES_FEW;
  let criteria = Object.fromEntries(CRITERIA.map((name) => [name, given.get(name) ?? '']));
  const later = () => {
    clearTimeout(timer);
    timer = setTimeout(search, SEARCH_DELAY_MS);
  };
  const inputs = Object.fromEntries(
    TERMS.map(([name, , example]) => [
      name,
      h('input', { type: 'search', name, placeholder: example, oninput: later }),
    ]),
  );
  inputs.kind = h(
    'select',
    { name: 'kind', onchange: search },
    h('option', { value: '' }, 'any'),
    KINDS.map((kind) => h('option', { value: kind }, kind)),
  );
  const inferred = h('input', { type: 'checkbox', name: 'inferred', onchange: search });
  const label = (text, input) => h('label', null, h('span', null, text), input);
  const foot = h('p', { class: 'foot', role: 'status' });
  const side = h('div', { class: 'facets' });
  const found = h('div');
  const more = h('p', { class: 'foot' });
  replace(
    root,
    h('h1', null, 'Registry'),
    tabs('search'),
    h(
      'form',
      {
        class: 'search',
        'aria-label': 'Search',
        onsubmit: (event) => {
          event.preventDefault();
          search();
        },
      },
      TERMS.map(([name, text]) => label(text, inputs[name])),
      label('Kind', inputs.kind),
      h(
        'label',
        { class: 'inferred', title: 'as the ontologies of the node and of your account state it' },
        inferred,
        ' also subclasses and narrower properties',
      ),
      h('button', { class: 'unseen', type: 'submit' }, 'Search'),
    ),
    foot,
    h('div', { class: 'faceted' }, side, h('div', null, found, more)),
  );
  fill();

  /** Writes the criteria into the form. */
  function fill() {
    for (const [name, input] of Object.entries(inputs)) input.value = criteria[name];
    inferred.checked = criteria.inferred === 'true';
  }

  function choose(next) {
    criteria = next;
    fill();
    search();
  }

  function facet({ title, items, hidden }) {
    const value = (one) => one.value || '(empty)';
    return h(
      'section',
      { 'aria-label': title },
      h('h2', null, title),
      h(
        'ul',
        { class: 'plain' },
        items.map((one) =>
          h(
            'li',
            null,
            h(
              'button',
              {
                type: 'button',
                class: 'facet',
                'aria-pressed': one.isChosen ? 'true' : 'false',
                title: one.taxonomy ? `${one.value} of ${one.taxonomy}` : one.value,
                onclick: () => choose(one.next),
              },
              h('span', null, title === 'Type' ? local(value(one)) : value(one)),
              h('span', { class: 'count' }, count(one.count)),
            ),
          ),
        ),
      ),
      hidden > 0
        ? h(
            'p',
            { class: 'foot' },
            `${count(hidden)} more values. `,
            values < VALUES_MOST
              ? h('button', { type: 'button', onclick: allValues }, 'Show them')
              : 'Narrow the search to see them.',
          )
        : null,
    );
  }

  function allValues() {
    values = VALUES_MOST;
    search();
  }

  function showFacets(answer) {
    replace(
      side,
      answer.is_complete
        ? null
        : h(
            'p',
            { class: 'partial' },
            `Counts of the first ${count(answer.entities)} by name: more match. Narrow the search for ` +
              'exact counts.',
          ),
      facets(answer, criteria).map(facet),
    );
  }

  function row(one) {
    return [
      [
        h('a', { href: entityHref(one.key) }, one.name || one.key),
        h('small', { class: 'each' }, one.key),
      ],
      one.kind,
      (one.types ?? []).map((type) => h('span', { class: 'name', title: type }, local(type))),
      (one.scopes ?? []).map((scope) => h('small', { class: 'each' }, scope)),
    ];
  }

  async function search() {
    const turn = (newest += 1);
    for (const [name, input] of Object.entries(inputs)) criteria[name] = input.value.trim();
    criteria.inferred = inferred.checked ? 'true' : '';
    if (!criteria.category) criteria.taxonomy = '';
    history.replaceState(null, '', query('#/registry', criteria));
    let all = [];
    let counts;

    async function part(cursor) {
      const start = performance.now();
      try {
        const answer = await read(
          query(path('entities'), {
            ...criteria,
            limit: LIMIT,
            cursor,
            facets: cursor ? '' : values,
          }),
        );
        if (turn !== newest) return;
        const took = Math.round(performance.now() - start);
        all = [...all, ...answer.entities];
        counts = answer.facets ?? counts;
        if (answer.facets) showFacets(answer.facets);
        setText(foot, `${shownOf(all.length, counts, answer.next)} (${took} ms)`);
        replace(
          found,
          all.length
            ? table('Entities', ['name', 'kind', 'types', 'scopes'], all.map(row), 'stack')
            : null,
        );
        replace(
          more,
          answer.next
            ? h('button', { type: 'button', onclick: () => part(answer.next) }, `Show ${LIMIT} more`)
            : null,
        );
      } catch (error) {
        if (turn !== newest) return;
        if (!cursor) {
          setText(foot, '');
          replace(found, problem(error));
          replace(side);
          replace(more);
        } else replace(more, problem(error));
      }
    }
    await part('');
  }
  search();
  return { close: () => clearTimeout(timer) };
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
