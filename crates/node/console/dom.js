// The only module that creates elements. Text of devices and of the node always becomes a text node,
// never markup, and an address from outside never becomes a link.

const SVG = 'http://www.w3.org/2000/svg';

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith('on')) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? '' : String(value));
  }
  add(node, children);
  return node;
}

/**
 * Appends nodes, and strings as text; lists are flattened, nothing is skipped silently but null.
 */
export function add(node, children) {
  for (const child of [children].flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    node.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
}

/**
 * An HTML element: h('a', { href: '#/' }, 'Overview'). Attributes starting with "on" are listeners.
 */
export function h(tag, attributes, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

/** An SVG element. */
export function svg(tag, attributes, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

/** Sets the text of a node, without touching the document when it is the same. */
export function setText(node, text) {
  const value = text === null || text === undefined ? '' : String(text);
  if (node.textContent !== value) node.textContent = value;
}

/** Sets or removes an attribute, without touching the document when it is the same. */
export function setAttribute(node, name, value) {
  if (value === null || value === undefined || value === false) node.removeAttribute(name);
  else if (node.getAttribute(name) !== String(value)) node.setAttribute(name, String(value));
}

/** Replaces the children of a node. */
export function replace(node, ...children) {
  node.replaceChildren();
  add(node, children);
}

/**
 * Keeps the children of `parent` equal to `items`: a child stays the same element as long as its
 * key is there, so focus, selection and canvases survive a refresh.
 */
export function keyed(parent, items, keyOf, create, update) {
  const known = (parent.chappeChildren ??= new Map());
  const kept = new Set();
  let place = parent.firstChild;
  for (const item of items) {
    const key = keyOf(item);
    if (kept.has(key)) continue;
    kept.add(key);
    let entry = known.get(key);
    if (!entry) {
      entry = { node: create(item) };
      known.set(key, entry);
    }
    update?.(entry.node, item);
    if (entry.node === place) place = place.nextSibling;
    else parent.insertBefore(entry.node, place);
  }
  for (const [key, entry] of known) {
    if (kept.has(key)) continue;
    entry.node.remove();
    known.delete(key);
  }
}

function isEmpty(cell) {
  return (
    cell === '' || cell === null || cell === undefined || (Array.isArray(cell) && cell.length === 0)
  );
}

/** A table with a caption for screen readers. Cells are strings or nodes. */
export function table(caption, columns, rows, className = '') {
  const head = columns.map((column) => h('th', { scope: 'col' }, column));
  return h(
    'div',
    { class: 'scroll', tabindex: '0', role: 'region', 'aria-label': caption },
    h(
      'table',
      { class: className },
      h('caption', { class: 'unseen' }, caption),
      h('thead', null, h('tr', null, head)),
      h(
        'tbody',
        null,
        rows.map((row) =>
          h(
            'tr',
            null,
            row.map((cell, index) =>
              h(
                'td',
                { 'data-label': columns[index] },
                isEmpty(cell) ? null : h('div', null, cell),
              ),
            ),
          ),
        ),
      ),
    ),
  );
}

/** A list of terms with their values; rows without a value are omitted. */
export function facts(rows) {
  return h(
    'dl',
    { class: 'facts' },
    rows
      .filter(
        ([, value]) =>
          value !== null &&
          value !== undefined &&
          value !== '' &&
          !(Array.isArray(value) && value.length === 0),
      )
      .map(([term, value]) =>
        h(
          'div',
          null,
          h('dt', null, term),
          h(
            'dd',
            null,
            Array.isArray(value) ? value.map((one) => h('span', { class: 'each' }, one)) : value,
          ),
        ),
      ),
  );
}

/** A problem of the API, with its hint. */
export function problem(error) {
  return h(
    'div',
    { class: 'problem', role: 'alert' },
    h('strong', null, error.title ?? 'error'),
    error.detail ? h('p', null, error.detail) : null,
    error.hint ? h('p', { class: 'hint' }, h('b', null, 'hint: '), error.hint) : null,
  );
}
