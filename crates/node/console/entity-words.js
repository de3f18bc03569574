// What the pages of the registry say: facets, rights and changes as words, and where the neighbours of
// an entity lie in its picture. Numbers and texts only.

import { count } from './format.js';

/** The criteria of a search, in the order of the form. */
export const CRITERIA = [
  'prefix',
  'kind',
  'type',
  'scope',
  'observed_property',
  'owner',
  'category',
  'taxonomy',
  'about',
  'inferred',
];
const FACETS = [
  ['kind', 'Kind'],
  ['type', 'Type'],
  ['owner', 'Owner or author'],
  ['observed_property', 'Observed property'],
  ['category', 'UDDI category'],
];
export const RIGHTS = [
  ['read', 'Read', 'find and read it'],
  ['annotate', 'Annotate', 'attach metadata'],
  ['write', 'Write', 'replace and remove it'],
  ['administer', 'Administer', 'change these rights'],
];

/**
 * The facets of an answer: for each its values with the criteria that a search has when the value is
 * chosen, or no longer is. A facet that has one value which every entity has, and that is no criterion,
 * says nothing and is left out.
 */
export function facets(answer, criteria) {
  const found = FACETS.map(([name, title]) => {
    const { values, distinct } = answer[name];
    const chosen = criteria[name];
    const items = values.map((one) => {
      const isChosen =
        chosen === one.value &&
        (name !== 'category' || (criteria.taxonomy || null) === (one.taxonomy ?? null));
      const next = { ...criteria, [name]: isChosen ? '' : one.value };
      if (name === 'category') next.taxonomy = isChosen ? '' : (one.taxonomy ?? '');
      return { value: one.value, taxonomy: one.taxonomy, count: one.count, isChosen, next };
    });
    const isIdle =
      distinct === 1 && !chosen && answer.is_complete && values[0]?.count === answer.entities;
    return { name, title, items: isIdle ? [] : items, hidden: isIdle ? 0 : distinct - values.length };
  });
  return found.filter((facet) => facet.items.length > 0);
}

const UDDI = 'https://chappe.example/ns/uddi#';
const RDFS = 'http://www.w3.org/2000/01/rdf-schema#';
const TD = 'https://www.w3.org/2019/wot/td#';
const NAMES = [`${UDDI}name`, `${RDFS}label`, `${TD}title`];
const DESCRIPTIONS = [
  `${UDDI}description`,
  `${RDFS}comment`,
  `${TD}description`,
  'http://purl.org/dc/terms/description',
];

function literals(entity, predicates) {
  const own = (entity.triples ?? []).filter(
    (one) => !one.subject && one.object_kind === 'literal' && predicates.includes(one.predicate),
  );
  const texts = own.map((one) => (one.language ? `${one.object} (${one.language})` : one.object));
  return [...new Set(texts)];
}

/** The further names of an entity, with their languages. */
export function names(entity) {
  return literals(entity, NAMES).filter((name) => name !== entity.name);
}

/** The descriptions of an entity, with their languages. */
export function descriptions(entity) {
  return literals(entity, DESCRIPTIONS);
}

/** How many of the found entities are shown. */
export function shownOf(shown, answer, hasMore) {
  const facetCount = answer?.entities;
  if (!hasMore) return `${count(shown)} found, all are shown`;
  if (facetCount === undefined) return `${count(shown)} are shown, there are more`;
  return `${count(shown)} of ${answer.is_complete ? '' : 'more than '}${count(facetCount)} are shown`;
}

/** The holders in a text, separated by commas or blanks. */
export function holders(text) {
  return text.split(/[\s,]+/).filter((one) => one !== '');
}

/** The body of a change of rights; `annotate` is null where nothing is stated. */
export function stated(texts, isAnnotateStated) {
  const body = Object.fromEntries(RIGHTS.map(([right]) => [right, holders(texts[right] ?? '')]));
  if (!isAnnotateStated) body.annotate = null;
  return body;
}

/** Whether an account may probably change a piece of metadata; the node decides. */
export function mayChange(piece, self) {
  if (!self || !self.roles.some((role) => role === 'write' || role === 'administer')) return false;
  if (self.name === piece.author || self.roles.includes('administer')) return true;
  return (piece.writers ?? []).some(
    (writer) =>
      writer === 'everybody' ||
      writer === 'accounts' ||
      writer === `account:${self.name}` ||
      writer.startsWith('group:') ||
      writer.startsWith('role:'),
  );
}

const CHANGES = {
  appeared: 'published, or became visible',
  changed: 'changed',
  rights: 'its rights changed',
  disappeared: 'removed, or no longer visible',
};

/** What a change of the history was. */
export function changeWords(change) {
  const differences = change.differences;
  const word = CHANGES[change.change] ?? change.change;
  if (!differences) {
    return change.change === 'changed' ? `${word}; what differs is no longer known` : word;
  }
  const parts = [...differences.fields];
  for (const [verb, number] of [
    ['added', differences.added_count],
    ['removed', differences.removed_count],
  ]) {
    if (number) parts.push(`${count(number)} ${number === 1 ? 'property' : 'properties'} ${verb}`);
  }
  return `${word}: ${parts.length ? parts.join(', ') : 'published again as it was'}`;
}

/** Where a history begins; `time` is its beginning as a text, if it is known. */
export function beginning(history, time) {
  if (!history.is_cut) return 'This is the whole history.';
  const from = time ?? `position ${history.begins_at} of the journal`;
  return `The history begins at ${from}: older changes of the registry are no longer known.`;
}

/** How the entity and a neighbour are related: arrows with the local names of properties. */
export function relation(neighbour, name) {
  return [
    ...neighbour.named_by.map((property) => `→ ${name(property)}`),
    ...neighbour.names.map((property) => `← ${name(property)}`),
  ];
}

/**
 * Where the neighbours lie in a picture of this width: named ones on the right, naming ones on the left,
 * on a narrow screen below and above. Each has x, y, width, height and the ends of its line.
 */
export function layout(width, neighbours) {
  const isNarrow = width < 620;
  const height = 40;
  const box = Math.min(isNarrow ? width - 48 : 230, Math.max(120, width / 3 - 24));
  const left = neighbours.filter((one) => one.names.length > 0 && one.named_by.length === 0);
  const right = neighbours.filter((one) => !left.includes(one));
  const places = new Map();
  const pitch = height + 12;
  if (isNarrow) {
    const wide = Math.min(box, width - 40);
    const column = (items, from) =>
      items.forEach((one, index) =>
        places.set(one.key, { x: width - wide, y: from + index * pitch, width: wide, height }),
      );
    column(left, 0);
    const self = { x: 0, y: left.length * pitch, width: wide, height };
    column(right, (left.length + 1) * pitch);
    const total = (left.length + right.length + 1) * pitch - 12;
    for (const place of places.values()) {
      const at = { x: place.x, y: place.y + height / 2 };
      const isAbove = place.y < self.y;
      place.line = [{ x: 14, y: isAbove ? self.y : self.y + height }, { x: 14, y: at.y }, at];
    }
    return { places, self, height: total };
  }
  const rows = Math.max(left.length, right.length, 1);
  const total = rows * pitch - 12;
  const self = { x: (width - box) / 2, y: (total - height) / 2, width: box, height };
  const column = (items, x, end, start) => {
    const from = (total - (items.length * pitch - 12)) / 2;
    items.forEach((one, index) => {
      const y = from + index * pitch;
      const line = [
        { x: start, y: self.y + height / 2 },
        { x: end, y: y + height / 2 },
      ];
      places.set(one.key, { x, y, width: box, height, line });
    });
  };
  column(left, 0, box, self.x);
  column(right, width - box, width - box, self.x + box);
  return { places, self, height: total };
}
