// Accounts of people and programs: list, add, new token, revoke. Only administrators see them.

import { change, path, query, read } from './api.js';
import { h, problem, replace, table } from './dom.js';
import { bytes, moment, since } from './format.js';

const REFRESH_S = 10;
const ROLES = [
  ['read', 'read streams and the registry'],
  ['write', 'define streams, write elements and entities'],
  ['operate', 'change sensors and links, remove streams; includes read'],
  ['administer', 'manage accounts, and everything else'],
];

/** The grants of a form: each chosen role with the streams, prefixes and scopes of the text. */
export function grants(roles, within) {
  const areas = within.split(/[\s,]+/).filter((area) => area !== '');
  return roles.map((role) => (areas.length ? `${role}=${areas.join(',')}` : role));
}

/** What an account uses, with its share if it has one. */
function used(now, most, text) {
  return most === null ? now : `${now} of ${text(most)}`;
}

/** Opens the page. */
export function open(root) {
  const body = h('div');
  const result = h('div', { role: 'status' });
  const name = field('Name', 'ada');
  const within = field('Only these streams, prefixes and scopes', 'all; or ward.*, lab.pulse');
  const certificate = field('Subject of a client certificate, instead of a token', 'CN=ada,O=Ward 3');
  const expires = field('Valid until', 'for ever; or 2027-01-01T00:00:00Z');
  const roles = ROLES.map(([role, meaning]) => {
    const box = h('input', { type: 'checkbox', value: role });
    return { box, label: h('label', { title: meaning }, box, ' ', role) };
  });
  let beat = 0;

  replace(
    root,
    h('h1', null, 'Accounts'),
    h(
      'p',
      { class: 'quiet' },
      'People and programs that may use this node. Changes are recorded in the stream ',
      h('a', { href: '#/streams/chappe.audit' }, 'chappe.audit'),
      '.',
    ),
    result,
    body,
    h(
      'section',
      null,
      h('h2', null, 'Add an account'),
      h(
        'form',
        { class: 'stacked', onsubmit: add },
        name.label,
        h(
          'div',
          { class: 'bar', role: 'group', 'aria-label': 'Roles' },
          roles.map((one) => one.label),
        ),
        within.label,
        certificate.label,
        expires.label,
        h('button', { class: 'main', type: 'submit' }, 'Add'),
      ),
    ),
  );

  function field(label, placeholder) {
    const box = h('input', { type: 'text', placeholder, autocomplete: 'off', spellcheck: 'false' });
    return { box, label: h('label', null, h('span', null, label), box) };
  }

  function showToken(answer) {
    const { account, token } = answer;
    if (!token) {
      replace(result, h('p', { class: 'lead' }, `${account.name} was added.`));
      return;
    }
    replace(
      result,
      h(
        'div',
        { class: 'gate' },
        h('p', null, h('b', null, `The token of ${account.name}. It is shown only now.`)),
        h('pre', { class: 'code' }, token),
      ),
    );
  }

  async function act(work) {
    try {
      const answer = await work();
      if (answer?.account) showToken(answer);
      else replace(result);
    } catch (error) {
      replace(result, problem(error));
    }
    fill();
  }

  function add(event) {
    event.preventDefault();
    const chosen = roles.filter((one) => one.box.checked).map((one) => one.box.value);
    const body = { name: name.box.value.trim(), roles: grants(chosen, within.box.value) };
    if (certificate.box.value.trim()) body.certificate = certificate.box.value.trim();
    if (expires.box.value.trim()) body.expires_at = expires.box.value.trim();
    act(() => change('POST', path('accounts'), body));
  }

  function buttons(account) {
    if (account.created_at === null) return h('span', { class: 'quiet' }, 'first administrator');
    const renew = () => act(() => change('POST', path('accounts', account.name, 'token'), {}));
    const forget = account.state === 'revoked';
    const url = query(path('accounts', account.name), { forget: forget ? 'true' : '' });
    const revoke = (event) => {
      // The second click confirms.
      const { target } = event;
      if (target.dataset.sure) act(() => change('DELETE', url));
      else {
        target.dataset.sure = 'yes';
        target.textContent = forget ? 'Forget for good?' : 'Revoke for good?';
      }
    };
    return h(
      'div',
      { class: 'bar' },
      forget ? null : h('button', { type: 'button', onclick: renew }, 'New token'),
      h('button', { type: 'button', onclick: revoke }, forget ? 'Forget' : 'Revoke'),
    );
  }

  async function fill() {
    if (body.contains(document.activeElement)) return;
    try {
      const { accounts } = await read(path('accounts'));
      replace(
        body,
        table(
          'Accounts',
          ['name', 'state', 'roles', 'credentials', 'created', 'expires', 'in the log', 'streams', ''],
          accounts.map((one) => [
            one.name,
            one.state,
            one.roles.map((role) => h('code', null, role, ' ')),
            [one.has_token ? 'token' : '', one.certificate ?? '', one.key ? 'key' : ''].filter(Boolean).join(', '),
            one.created_at ? `${since(one.created_at)} ago by ${one.created_by}` : '',
            one.expires_at ? moment(one.expires_at) : '',
            used(bytes(one.use.bytes), one.use.bytes_max, bytes),
            used(String(one.use.streams), one.use.streams_max, String),
            buttons(one),
          ]),
          'stack',
        ),
      );
    } catch (error) {
      replace(body, problem(error));
    }
  }

  function tick() {
    if (beat % REFRESH_S === 0) fill();
    beat += 1;
  }
  tick();
  return { tick, close() {} };
}
