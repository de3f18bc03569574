// The frame of the console: the router, the navigation with its counts, the state of the
// connection.

import { onRefused, useToken } from './api.js';
import { h, replace, setAttribute, setText } from './dom.js';
import { age, perSecond } from './format.js';
import * as live from './live.js';
import { errors, model, refreshAll, start, watch } from './model.js';
import * as accounts from './page-accounts.js';
import * as devices from './page-devices.js';
import * as dropped from './page-dropped.js';
import * as links from './page-links.js';
import * as node from './page-node.js';
import * as overview from './page-overview.js';
import * as registry from './page-registry.js';
import * as sensors from './page-sensors.js';
import * as streams from './page-streams.js';
import * as topics from './page-topics.js';
import * as wrappers from './page-wrappers.js';
import { setSign } from './semaphore.js';
import { named, needsLook } from './topic-words.js';

const PAGES = [
  { path: '', label: 'Overview', page: overview },
  {
    path: 'devices',
    label: 'Devices',
    page: devices,
    count: () => model.devices?.length,
    alert: () => model.devices?.some((one) => one.state === 'attention'),
  },
  { path: 'registry', label: 'Registry', page: registry },
  { path: 'streams', label: 'Streams', page: streams, count: () => model.streams?.length },
  {
    path: 'sensors',
    label: 'Virtual sensors',
    page: sensors,
    count: () => model.sensors?.length,
    alert: () => model.sensors?.some((one) => one.state === 'failed'),
  },
  {
    path: 'links',
    label: 'Links',
    page: links,
    count: () => model.links?.links?.length,
    alert: () => model.links?.links?.some((one) => one.state === 'waiting' || one.dead_letters),
  },
  {
    path: 'wrappers',
    label: 'Wrappers',
    page: wrappers,
    count: () => wrapperCount(model.wrappers),
    alert: () => wrapperTrouble(model.wrappers),
  },
  {
    path: 'dds',
    label: 'DDS',
    page: topics,
    count: () => named(model.topics),
    alert: () => needsLook(model.topics),
  },
  { path: 'dropped', label: 'Dropped', page: dropped, count: () => model.drops?.length },
  { path: 'accounts', label: 'Accounts', page: accounts },
  { path: 'node', label: 'Node', page: node },
];

function wrapperCount(both) {
  return both ? both.wrappers.length + both.exporters.length : undefined;
}

function wrapperTrouble(both) {
  const troubled = (one) => one.state === 'trouble' || one.state === 'failed' || one.error || one.dead_letters;
  return both ? [...both.wrappers, ...both.exporters].some(troubled) : false;
}

const nav = document.getElementById('nav');
const main = document.getElementById('page');
const which = document.getElementById('which');
const linkLine = document.getElementById('link');

for (const entry of PAGES) {
  entry.number = h('span', { class: 'count' });
  entry.link = h('a', { href: `#/${entry.path}` }, h('span', null, entry.label), entry.number);
}
replace(
  nav,
  h(
    'ul',
    null,
    PAGES.map((entry) => h('li', null, entry.link)),
  ),
);

let current = null;

/** The page, what it is about, and the query of an address like #/streams/name?view=sql. */
function route() {
  const [way, search = ''] = location.hash.replace(/^#\/?/, '').split('?');
  const [path, ...rest] = way.split('/');
  let subject = rest.join('/');
  try {
    subject = decodeURIComponent(subject);
  } catch {
    subject = '';
  }
  return { path, subject: subject || null, query: new URLSearchParams(search) };
}

function show() {
  if (location.hash === '#page') return;
  const at = route();
  const entry = PAGES.find((one) => one.path === at.path) ?? PAGES[0];
  current?.view?.close?.();
  for (const one of PAGES) setAttribute(one.link, 'aria-current', one === entry ? 'page' : null);
  replace(main);
  window.scrollTo(0, 0);
  document.title = `${at.subject ?? entry.label} · Chappe`;
  const isFirst = current === null;
  current = { entry, view: entry.page.open(main, at) };
  if (!isFirst) main.focus({ preventScroll: true });
  followStreams();
}

function followStreams() {
  if (!model.streams) return;
  const names = model.streams.map((one) => one.name);
  live.follow(names, current?.view?.streams?.() ?? []);
}

function showNav() {
  for (const entry of PAGES) {
    setText(entry.number, entry.count?.() ?? '');
    setAttribute(entry.number, 'data-alert', entry.alert?.() ? 'yes' : null);
  }
  setText(which, model.node?.name ?? '');
}

const linkSign = h('span', { 'aria-hidden': 'true' });
const linkWord = h('b');
const linkMore = h('span', { class: 'more', 'aria-hidden': 'true' });
replace(linkLine, linkSign, linkWord, linkMore);

function showLink() {
  const { state, since, retryAt } = live.link;
  setSign(linkSign, state);
  setAttribute(linkLine, 'data-state', state);
  setText(linkWord, { live: 'live', broken: 'reconnecting', opening: 'connecting' }[state]);
  if (state === 'live') setText(linkMore, perSecond(live.arrivals()));
  else if (retryAt > Date.now()) setText(linkMore, `next try in ${age(retryAt - Date.now())}`);
  else setText(linkMore, state === 'broken' ? `for ${age(Date.now() - since)}` : '');
}

watch((kind) => {
  showNav();
  if (kind === 'streams') followStreams();
  current?.view?.changed?.(kind, errors[kind]);
});
live.listen((kind, subject) => {
  if (kind === 'link') showLink();
  current?.view?.heard?.(kind, subject);
});
setInterval(() => {
  showLink();
  current?.view?.tick?.();
}, 1000);
// Accounts need an administrator's token, and a node beyond loopback one for reading too.
let gate = null;
onRefused(() => {
  if (gate) return;
  const box = h('input', { type: 'password', autocomplete: 'off', spellcheck: 'false' });
  const enter = (event) => {
    event.preventDefault();
    useToken(box.value.trim());
    gate.remove();
    gate = null;
    live.open();
    refreshAll().then(show);
  };
  gate = h(
    'form',
    { class: 'gate', onsubmit: enter },
    h('p', null, h('b', null, 'This needs the token of an account.')),
    h(
      'p',
      { class: 'quiet' },
      'An administrator adds accounts. The first start of the node wrote the token of the first ',
      'administrator to the file new-token in its data directory. To get a new one, remove the file ',
      'token there and restart the node. This tab forgets the token when it is closed.',
    ),
    h('label', null, h('span', null, 'Token'), box),
    h('button', { class: 'main', type: 'submit' }, 'Enter'),
  );
  document.getElementById('gate').append(gate);
  box.focus();
});

window.addEventListener('hashchange', show);
showLink();
show();
live.open();
start();
