// One entity of the registry: what it is, its surroundings, the pieces of metadata about it, its history,
// its rights, and its document.

import { change, path, query, read, refused } from './api.js';
import { facts, h, problem, replace, table } from './dom.js';
import { picture } from './entity-picture.js';
import {
  RIGHTS,
  beginning,
  changeWords,
  descriptions,
  mayChange,
  names,
  relation,
  stated,
} from './entity-words.js';
import { count, local, moment, short } from './format.js';

const PAGES = { device: 'devices', stream: 'streams', 'virtual-sensor': 'sensors' };
const PIECES_PART = 50;
const NEIGHBOURS_PART = 20;
const HISTORY_PART = 10;
/** The keys of devices that the node has found; others have no Thing Description. */
const FOUND_DEVICES = 'urn:chappe:device:';
const DOCUMENT_CHARS_MOST = 20_000;
const VALUES = [
  ['value', 'text'],
  ['typed', 'literal with a datatype'],
  ['uri', 'URI'],
  ['turtle', 'RDF graph (Turtle)'],
];

/** The page of an entity. */
export function entityHref(key) {
  return `#/registry/${encodeURIComponent(key)}`;
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

function objectCell(triple) {
  const isTyped = triple.datatype && !triple.datatype.endsWith('#string');
  return [
    term(triple.object, triple.object_kind),
    isTyped ? h('small', null, ` ${short(triple.datatype)}`) : null,
    triple.language ? h('small', null, ` @${triple.language}`) : null,
  ];
}

function predicateCell(predicate) {
  return [short(predicate), h('small', { class: 'each' }, predicate)];
}

function properties(entity) {
  const triples = entity.triples ?? [];
  return h(
    'section',
    { 'aria-label': 'Properties' },
    h('h2', null, `${count(triples.length)} properties`),
    triplesBySubject(entity).map(([subject, own]) => [
      subject ? h('h3', null, partName(subject, own)) : null,
      table(
        `Properties of ${subject ?? 'the entity'}`,
        ['property', 'value'],
        own.map((triple) => [predicateCell(triple.predicate), objectCell(triple)]),
        'stack triples',
      ),
    ]),
  );
}

function field(label, attributes = {}) {
  const box = h('input', { type: 'text', autocomplete: 'off', spellcheck: 'false', ...attributes });
  return { box, label: h('label', null, h('span', null, label), box) };
}

/** Asks for a second click before it acts. */
function confirmed(text, question, act) {
  const button = h('button', { type: 'button' }, text);
  button.addEventListener('click', () => {
    if (button.dataset.sure) act();
    else {
      button.dataset.sure = 'yes';
      button.textContent = question;
    }
  });
  return button;
}

/** A list that is read in parts; `show` draws all that were read, and a button reads the next part. */
function parts(url, criteria, member, size, show) {
  const node = h('div');
  const foot = h('p', { class: 'foot' });
  let items = [];
  let busy = false;

  async function more(cursor) {
    if (busy) return;
    busy = true;
    try {
      const part = await read(query(url, { ...criteria, limit: size, cursor }));
      items = cursor ? [...items, ...part[member]] : part[member];
      show(node, items, part);
      replace(
        foot,
        part.next
          ? [
              `${count(items.length)} are shown. `,
              h('button', { type: 'button', onclick: () => more(part.next) }, 'Show more'),
            ]
          : null,
      );
    } catch (error) {
      replace(cursor ? foot : node, problem(error));
    }
    busy = false;
  }
  return { node: h('div', null, node, foot), load: () => more('') };
}

function surroundings(entity, drawing) {
  const list = parts(
    path('entities', entity.key, 'surroundings'),
    {},
    'neighbours',
    NEIGHBOURS_PART,
    (node, neighbours) => {
      drawing.show(entity, neighbours, entityHref);
      replace(
        node,
        neighbours.length
          ? table(
              'Neighbours',
              ['entity', 'kind', 'relation'],
              neighbours.map((one) => [
                [
                  h('a', { href: entityHref(one.key) }, one.name || one.key),
                  h('small', { class: 'each' }, one.key),
                ],
                one.kind,
                relation(one, short).map((text) => h('span', { class: 'each' }, text)),
              ]),
              'stack neighbours',
            )
          : h('p', { class: 'quiet' }, 'It names no other entity that you may see, and none names it.'),
      );
    },
  );
  const node = h(
    'section',
    { 'aria-label': 'Surroundings' },
    h('h2', null, 'Surroundings'),
    h('p', { class: 'quiet' }, '→ the entity names it, ← it names the entity'),
    drawing.node,
    list.node,
  );
  return { node, load: list.load };
}

function pieceValue(piece) {
  if (piece.uri) return h('code', null, piece.uri);
  if (piece.graph) {
    return [
      `a graph of ${count(piece.graph.length)} triples`,
      h(
        'details',
        null,
        h('summary', null, 'show'),
        table(
          'The graph',
          ['subject', 'property', 'value'],
          piece.graph.map((one) => [one.subject ?? '', short(one.predicate), objectCell(one)]),
          'stack',
        ),
      ),
    ];
  }
  const datatype = piece.datatype ? h('small', null, ` ${short(piece.datatype)}`) : null;
  return [piece.value, datatype];
}

/** The form that attaches a piece, or changes one. */
function pieceForm(subject, piece, done) {
  const type = field('Type, an IRI', {
    required: true,
    name: 'piece-type',
    value: piece?.type ?? '',
    placeholder: 'http://example.com/calibrated',
  });
  const kind = h(
    'select',
    { name: 'piece-kind', onchange: showKind },
    VALUES.map(([name, text]) => h('option', { value: name }, text)),
  );
  if (piece?.uri) kind.value = 'uri';
  else if (piece?.datatype) kind.value = 'typed';
  else if (piece?.graph) kind.value = 'turtle';
  const value = h('textarea', { rows: 3, name: 'piece-value', spellcheck: 'false', class: 'low' });
  value.value = piece?.uri ?? piece?.value ?? '';
  const datatype = field('Datatype, an IRI', { value: piece?.datatype ?? '', name: 'piece-datatype' });
  const readers = field('Who may read it', {
    value: (piece?.readers ?? []).join(', '),
    name: 'piece-readers',
    placeholder: piece ? 'nobody but its author' : 'those who may read the entity',
  });
  const answer = h('div', { role: 'status' });
  const label = (text, box) => h('label', null, h('span', null, text), box);
  const form = h(
    'form',
    { class: 'stacked', onsubmit: send, 'aria-label': piece ? 'Change a piece' : 'Attach a piece' },
    type.label,
    label('Value is a', kind),
    label('Value', value),
    datatype.label,
    readers.label,
    piece?.graph
      ? h('p', { class: 'quiet' }, 'The document that you give replaces the graph of the piece.')
      : null,
    h(
      'div',
      { class: 'bar' },
      h('button', { class: 'main', type: 'submit' }, piece ? 'Change' : 'Attach'),
      piece ? h('button', { type: 'button', onclick: () => done(null) }, 'Cancel') : null,
    ),
    answer,
  );

  function showKind() {
    datatype.label.hidden = kind.value !== 'typed';
  }

  async function send(event) {
    event.preventDefault();
    const body = { subject, type: type.box.value.trim() };
    body[kind.value === 'typed' ? 'value' : kind.value] = value.value;
    if (kind.value === 'uri') body.uri = value.value.trim();
    if (kind.value === 'typed') body.datatype = datatype.box.value.trim();
    const who = readers.box.value.split(/[\s,]+/).filter(Boolean);
    const isSame = who.join() === (piece?.readers ?? []).join();
    if (piece ? !isSame : who.length) {
      body.readers = who;
      if (piece) body.writers = piece.writers;
    }
    try {
      const url = path('registry', 'metadata', ...(piece ? [piece.key] : []));
      done(await change(piece ? 'PUT' : 'POST', url, body));
    } catch (error) {
      replace(answer, problem(error));
    }
  }
  showKind();
  return { node: form, focus: () => type.box.focus() };
}

/** The lease of an entity or a piece, if it has one. */
function lease(one) {
  return one.lease_s ? `${count(one.lease_s)} s, unless it is renewed` : null;
}

/** A way to another account, where this one may not do something. */
function signIn(text) {
  return h(
    'p',
    { class: 'quiet' },
    text,
    ' ',
    h('button', { type: 'button', onclick: refused }, 'Use the token of an account'),
  );
}

function metadata(entity, self, changed) {
  const may = entity.may ?? [];
  const editor = h('div');
  const result = h('div', { role: 'status' });

  async function withdraw(piece) {
    try {
      await change('DELETE', path('registry', 'metadata', piece.key));
      replace(result, h('p', { class: 'lead' }, 'The piece is withdrawn.'));
      list.load();
      changed();
    } catch (error) {
      replace(result, problem(error));
    }
  }

  function edit(piece) {
    const form = pieceForm(entity.key, piece, (done) => {
      showEditor();
      if (!done) return;
      const text = piece ? 'The piece is changed.' : 'The piece is attached.';
      replace(result, h('p', { class: 'lead' }, text));
      list.load();
      changed();
    });
    replace(editor, form.node);
    return form;
  }

  function showEditor() {
    if (may.includes('annotate')) {
      replace(
        editor,
        h('button', { type: 'button', onclick: () => edit(null).focus() }, 'Attach a piece'),
      );
    } else {
      replace(editor, signIn('You may not annotate this entity.'));
    }
  }

  function buttons(piece) {
    if (!mayChange(piece, self())) return '';
    return h(
      'div',
      { class: 'bar' },
      h('button', { type: 'button', onclick: () => edit(piece).focus() }, 'Change'),
      confirmed('Withdraw', 'Withdraw for good?', () => withdraw(piece)),
    );
  }

  const url = path('registry', 'metadata');
  const list = parts(url, { subject: entity.key }, 'pieces', PIECES_PART, (node, pieces) => {
    const isLeased = pieces.some((piece) => piece.lease_s);
    const columns = ['type', 'value', 'author', 'date', 'readers', ...(isLeased ? ['lease'] : []), ''];
    replace(
      node,
      pieces.length
        ? table(
            'Pieces of metadata',
            columns,
            pieces.map((piece) => [
              [
                h('span', { title: piece.type }, short(piece.type)),
                h('a', { class: 'each', href: entityHref(piece.key) }, 'the piece'),
              ],
              pieceValue(piece),
              piece.author,
              h('time', { datetime: piece.date, title: piece.date }, moment(piece.date)),
              (piece.readers ?? []).join(', ') || 'its author',
              ...(isLeased ? [lease(piece) ?? 'none'] : []),
              buttons(piece),
            ]),
            'stack pieces',
          )
        : h('p', { class: 'quiet' }, 'Nobody has attached metadata that you may see.'),
    );
  });
  showEditor();
  const node = h(
    'section',
    { 'aria-label': 'Metadata' },
    h('h2', null, 'Metadata'),
    list.node,
    result,
    editor,
  );
  return { node, load: list.load };
}

function differences(entry) {
  const found = entry.differences;
  if (!found || found.added.length + found.removed.length === 0) return null;
  const lines = [
    ...found.removed.map((triple) => ['−', triple]),
    ...found.added.map((triple) => ['+', triple]),
  ];
  const hidden = found.added_count + found.removed_count - lines.length;
  return h(
    'details',
    null,
    h('summary', null, 'properties'),
    lines.map(([sign, triple]) =>
      h(
        'p',
        { class: sign === '+' ? 'added' : 'removed' },
        `${sign} ${triple.subject ? `${triple.subject} ` : ''}${short(triple.predicate)} `,
        objectCell(triple),
      ),
    ),
    hidden > 0 ? h('p', { class: 'foot' }, `${count(hidden)} more are not shown`) : null,
  );
}

function history(entity) {
  const list = parts(
    path('entities', entity.key, 'history'),
    {},
    'changes',
    HISTORY_PART,
    (node, changes, part) => {
      replace(
        node,
        changes.length
          ? table(
              'Changes',
              ['time', 'change', 'name'],
              changes.map((one) => [
                one.time
                  ? h('time', { datetime: one.time, title: one.time }, moment(one.time))
                  : `position ${one.position}`,
                [changeWords(one), differences(one)],
                one.name,
              ]),
              'stack history',
            )
          : h('p', { class: 'quiet' }, 'No change of it is known.'),
        part.next
          ? null
          : h(
              'p',
              { class: part.is_cut ? 'partial' : 'foot' },
              beginning(part, part.begins_time ? moment(part.begins_time) : null),
            ),
      );
    },
  );
  const node = h(
    'section',
    { 'aria-label': 'History' },
    h('h2', null, 'History'),
    list.node,
  );
  return { node, load: list.load };
}

function rights(entity, changed) {
  const may = entity.may ?? [];
  const body = h('div');
  const result = h('div', { role: 'status' });
  const node = h(
    'section',
    { 'aria-label': 'Rights' },
    h('h2', null, 'Rights'),
    h('p', null, `You may ${may.join(', ') || 'do nothing with'} it. Its owner, ${entity.owner}, may do everything.`),
    body,
    result,
  );

  function form(known) {
    const boxes = RIGHTS.map(([right, title, meaning]) => [
      right,
      field(`${title}: who may ${meaning}`, {
        name: `right-${right}`,
        value: (known[right] ?? []).join(', '),
        placeholder: 'nobody else',
      }),
    ]);
    const annotate = boxes.find(([right]) => right === 'annotate')[1];
    const isStated = h('input', { type: 'checkbox', name: 'annotate-stated' });
    isStated.checked = known.annotate !== null;
    const follow = () => {
      annotate.box.disabled = !isStated.checked;
      annotate.box.placeholder = isStated.checked
        ? 'nobody else'
        : 'accounts with the role write, if everybody may read it';
    };
    isStated.addEventListener('change', follow);
    follow();
    const save = async (event) => {
      event.preventDefault();
      const texts = Object.fromEntries(boxes.map(([right, one]) => [right, one.box.value]));
      try {
        const url = path('entities', entity.key, 'rights');
        form(await change('PUT', url, stated(texts, isStated.checked)));
        replace(result, h('p', { class: 'lead' }, 'The rights are set.'));
        changed();
      } catch (error) {
        replace(result, problem(error));
        // It may have given up its own right to administer them.
        if (error.status === 404) load();
      }
    };
    replace(
      body,
      h(
        'form',
        { class: 'stacked', onsubmit: save, 'aria-label': 'Rights to the entity' },
        boxes.map(([right, one]) => [
          one.label,
          right === 'annotate'
            ? h('label', null, isStated, ' state who may annotate it')
            : null,
        ]),
        h(
          'p',
          { class: 'quiet' },
          'everybody, accounts, account:NAME, group:NAME, or role:read, write, operate or administer; each ' +
            'right includes those before it.',
        ),
        h('button', { class: 'main', type: 'submit' }, 'Set rights'),
      ),
    );
  }

  async function load() {
    if (!may.includes('administer')) {
      replace(body, signIn('Who else may do what is shown to those who administer it.'));
      return;
    }
    try {
      form(await read(path('entities', entity.key, 'rights')));
    } catch (error) {
      replace(body, problem(error));
    }
  }
  return { node, load };
}

/** The Thing Description or the document of an entity, if it may have one. */
function documentOf(entity) {
  const isDocument = entity.kind === 'document';
  const isFound = entity.kind === 'device' && entity.key.startsWith(FOUND_DEVICES);
  if (!isDocument && !isFound && entity.kind !== 'thing') return null;
  const title = isDocument ? 'Document' : 'Thing Description';
  const url = isDocument
    ? path('registry', 'documents', entity.key)
    : `/things/${encodeURIComponent(entity.key)}`;
  const body = h('div');
  const node = h('section', { 'aria-label': title, hidden: true }, h('h2', null, title), body);
  async function load() {
    try {
      const found = await read(url, isDocument ? '*/*' : 'application/td+json');
      const text = typeof found === 'string' ? found : JSON.stringify(found, null, 2);
      const isLong = text.length > DOCUMENT_CHARS_MOST;
      replace(
        body,
        h('p', null, h('a', { href: url }, `${url}`)),
        h(
          'details',
          null,
          h('summary', null, `show the ${count(text.length)} characters`),
          h('pre', { class: 'code' }, isLong ? text.slice(0, DOCUMENT_CHARS_MOST) : text),
          isLong
            ? h('p', { class: 'partial' }, `The first ${count(DOCUMENT_CHARS_MOST)} are shown.`)
            : null,
        ),
      );
      node.hidden = false;
    } catch (error) {
      // A device that is away has no Thing Description.
      if (error.status === 404) return;
      replace(body, problem(error));
      node.hidden = false;
    }
  }
  return { node, load };
}

function missing(key, error) {
  const isMissing = error.status === 404;
  return [
    h('h1', null, isMissing ? 'Not in the registry' : 'Registry'),
    h('p', null, h('code', null, key)),
    isMissing
      ? h(
          'p',
          { class: 'quiet' },
          'It is not there, you may not see it, or it is a term of a vocabulary that entities refer to. ',
          h(
            'a',
            { href: query('#/registry', { observed_property: key }) },
            'Find entities that observe it',
          ),
        )
      : problem(error),
  ];
}

function head(entity) {
  const direct = PAGES[entity.kind];
  const subject = entity.kind === 'device' ? entity.key : entity.name;
  return [
    h('h1', null, entity.name || entity.key),
    facts([
      ['names', names(entity)],
      ['description', descriptions(entity)],
      ['key', h('code', null, entity.key)],
      ['kind', entity.kind],
      ['owner', h('a', { href: query('#/registry', { owner: entity.owner }) }, entity.owner)],
      [
        'types',
        (entity.types ?? []).map((type) =>
          h('a', { href: query('#/registry', { type }), title: type }, local(type)),
        ),
      ],
      ['lease', lease(entity)],
      ['scopes', (entity.scopes ?? []).map((scope) => h('code', null, scope))],
      [
        'page',
        direct
          ? h('a', { href: `#/${direct}/${encodeURIComponent(subject)}` }, 'state and data')
          : null,
      ],
    ]),
  ];
}

/** Opens the page of the entity `key`. */
export function openEntity(root, key) {
  const body = h('div');
  const drawing = picture();
  let isOpen = true;
  let self = null;
  replace(root, h('p', { class: 'crumb' }, h('a', { href: '#/registry' }, 'Registry')), body);

  async function open() {
    let entity;
    try {
      // Who asks decides which buttons there are; without an answer there are none.
      [entity, self] = await Promise.all([
        read(path('entities', key)),
        read(path('self')).catch(() => null),
      ]);
    } catch (error) {
      replace(body, missing(key, error));
      return;
    }
    if (!isOpen) return;
    const past = history(entity);
    const sections = [
      metadata(entity, () => self, () => past.load()),
      surroundings(entity, drawing),
      past,
      rights(entity, () => past.load()),
      documentOf(entity),
    ].filter(Boolean);
    const [pieces, ...others] = sections.map((one) => one.node);
    replace(body, head(entity), pieces, properties(entity), others);
    // One after the other: the node answers few queries at the same time.
    for (const section of sections) if (isOpen) await section.load();
  }
  open();
  return {
    close() {
      isOpen = false;
      drawing.end();
    },
  };
}
