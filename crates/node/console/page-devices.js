// Devices: their states with reasons, and their descriptions.

import { change, path } from './api.js';
import { facts, h, keyed, problem, replace, setText, table } from './dom.js';
import { local, moment, since } from './format.js';
import { errors, model } from './model.js';
import { setSign, word } from './semaphore.js';

const ORDER = { attention: 0, usable: 1, offline: 2, excluded: 3, gone: 4 };

function names(items) {
  return (items ?? []).map((one) => h('span', { class: 'name', title: one }, local(one)));
}

function streamLinks(device) {
  return (device.streams ?? []).map((name) =>
    h('a', { href: `#/streams/${encodeURIComponent(name)}` }, name),
  );
}

/** Opens the list, or one device. */
export function open(root, at) {
  return at.subject ? openOne(root, at.subject) : openList(root);
}

function openList(root) {
  const foot = h('p', { class: 'foot' });
  const list = h('ul', { class: 'rows devices' });
  const trouble = h('div');
  replace(root, h('h1', null, 'Devices'), trouble, foot, list);

  function create(device) {
    const row = {
      sign: h('span', { class: 'at' }),
      name: h('b'),
      reason: h('span', { class: 'reason' }),
      hint: h('p', { class: 'hint' }),
      source: h('small'),
      types: h('span', { class: 'types' }),
      streams: h('span', { class: 'streams' }),
      seen: h('small'),
      key: h('code'),
    };
    const node = h(
      'li',
      null,
      row.sign,
      h(
        'div',
        { class: 'words' },
        h('a', { href: `#/devices/${encodeURIComponent(device.key)}` }, row.name),
        row.source,
        row.types,
        h('p', null, row.reason),
        row.hint,
      ),
      h('div', { class: 'side' }, row.streams, row.seen),
    );
    node.chappeRow = row;
    return node;
  }

  function update(node, device) {
    const row = node.chappeRow;
    node.dataset.state = device.state;
    setSign(row.sign, device.state);
    setText(row.name, device.name || device.key);
    setText(row.source, device.wrapper ? ` ${device.found_by} ${device.wrapper}` : '');
    setText(row.reason, device.reason);
    row.hint.hidden = !device.hint;
    setText(row.hint, device.hint ? `hint: ${device.hint}` : '');
    setText(row.seen, `seen ${since(device.last_seen)} ago`);
    const state = JSON.stringify([device.types, device.streams]);
    if (node.chappeState === state) return;
    node.chappeState = state;
    replace(row.types, names((device.types ?? []).filter((type) => local(type) !== 'Device')));
    replace(row.streams, streamLinks(device));
  }

  function fill() {
    const devices = [...(model.devices ?? [])].sort(
      (a, b) =>
        (ORDER[a.state] ?? 5) - (ORDER[b.state] ?? 5) || (a.name ?? '').localeCompare(b.name ?? ''),
    );
    keyed(list, devices, (one) => one.key, create, update);
    const number = (state) => devices.filter((one) => one.state === state).length;
    const parts = [`seen ${devices.length}`, `usable ${number('usable')}`];
    if (number('attention'))
      parts.push(`${number('attention')} need${number('attention') === 1 ? 's' : ''} attention`);
    if (number('offline')) parts.push(`${number('offline')} offline`);
    if (number('excluded')) parts.push(`${number('excluded')} left out`);
    if (number('gone')) parts.push(`${number('gone')} gone`);
    setText(
      foot,
      model.devices && devices.length === 0
        ? 'No device found yet. The command `chappe doctor` checks whether multicast works here.'
        : model.devices
          ? parts.join(', ')
          : 'reading …',
    );
    replace(trouble, errors.devices ? problem(errors.devices) : null);
  }
  fill();
  return { changed: (kind) => kind === 'devices' && fill(), tick: fill, close() {} };
}

function openOne(root, key) {
  let drawn = null;
  const head = h('div');
  const body = h('div');
  const crumb = h('p', { class: 'crumb' }, h('a', { href: '#/devices' }, 'Devices'));
  replace(root, crumb, head, body);

  function fill() {
    const device = (model.devices ?? []).find((one) => one.key === key);
    if (!device) {
      if (model.devices) {
        replace(head, h('h1', null, 'No such device'));
        replace(
          body,
          h('p', null, 'This node has not found a device with the key ', h('code', null, key), '.'),
        );
      }
      return;
    }
    const { last_seen: lastSeen, ...rest } = device;
    const state = JSON.stringify(rest);
    const seen = body.querySelector('.seen');
    if (seen) setText(seen, `${since(lastSeen)} ago`);
    if (state === drawn) return;
    drawn = state;
    const mark = h('span', { class: 'at' });
    setSign(mark, device.state);
    replace(
      head,
      h('h1', null, mark, device.name || key),
      h(
        'p',
        { class: 'lead', 'data-state': device.state },
        h('b', null, word(device.state)),
        device.reason ? `: ${device.reason}` : '',
      ),
      device.hint ? h('p', { class: 'hint' }, h('b', null, 'hint: '), device.hint) : null,
      exclusion(device),
    );
    replace(body, details(device));
  }

  /** The button that leaves the device out, or takes it back. */
  function exclusion(device) {
    const isExcluded = device.state === 'excluded';
    // The configuration's exclusions end only there.
    // An announced device is left out where it is announced: in the wrapper's file or at its peer.
    if ((isExcluded && device.exclusion === null) || device.wrapper) return null;
    const label = isExcluded ? 'Take back' : 'Leave out';
    const trouble = h('div');
    const button = h('button', { type: 'button' }, label);
    button.addEventListener('click', async () => {
      button.disabled = true;
      try {
        if (isExcluded)
          await change('DELETE', path('devices', 'exclusions', String(device.exclusion)));
        else await change('POST', path('devices', 'exclusions'), { endpoint: device.endpoint });
        replace(trouble);
      } catch (error) {
        replace(trouble, problem(error));
        button.disabled = false;
      }
    });
    return h('div', { class: 'acts' }, button, trouble);
  }

  function details(device) {
    const services = (device.services ?? []).map((one) => [
      h('code', null, one.id),
      names(one.types),
      h('code', null, one.address),
    ]);
    return [
      h(
        'div',
        { class: 'two' },
        h(
          'section',
          null,
          h('h2', null, 'Description'),
          facts([
            ['manufacturer', device.manufacturer],
            ['model', device.model],
            ['firmware', device.firmware],
            ['serial number', device.serial_number],
            ['types', names(device.types)],
            ['scopes', (device.scopes ?? []).map((one) => h('code', { title: one }, one))],
          ]),
        ),
        h(
          'section',
          null,
          h('h2', null, 'How it is reached'),
          facts([
            ['endpoint', h('code', null, device.endpoint)],
            ['key', h('code', null, device.key)],
            ['announced to', device.wrapper],
            ['state since', device.state_since && moment(device.state_since)],
            ['dialect', device.dialect],
            ['addresses', (device.addresses ?? []).map((one) => h('code', null, one))],
            ['metadata version', device.metadata_version],
            ['found by', (device.found_by ?? []).join(', ')],
            ['first seen', moment(device.first_seen)],
            ['last seen', h('span', { class: 'seen' }, `${since(device.last_seen)} ago`)],
          ]),
        ),
      ),
      h(
        'section',
        null,
        h('h2', null, 'Streams'),
        (device.streams ?? []).length
          ? h(
              'ul',
              { class: 'plain' },
              streamLinks(device).map((link) => h('li', null, link)),
            )
          : h('p', { class: 'quiet' }, 'It gives no stream.'),
      ),
      h(
        'section',
        null,
        h('h2', null, 'Services'),
        services.length
          ? table('Services of the device', ['service', 'types', 'address'], services)
          : h('p', { class: 'quiet' }, 'It describes no service.'),
      ),
      h(
        'p',
        null,
        h(
          'a',
          { href: `#/registry/${encodeURIComponent(device.key)}` },
          'Entry in the registry',
        ),
      ),
    ];
  }
  fill();
  return { changed: (kind) => kind === 'devices' && fill(), tick: fill, close() {} };
}
