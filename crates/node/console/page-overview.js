// The first page: the line from devices through streams to virtual sensors, with live values, and
// the latest notices.

import { h, keyed, problem, replace, setAttribute, setText, svg } from './dom.js';
import { age, count, local, moment, number, perSecond, unit } from './format.js';
import { animate } from './frames.js';
import { before } from './history.js';
import * as live from './live.js';
import { device, errors, model } from './model.js';
import { setSign } from './semaphore.js';
import { spark } from './spark.js';

const ROWS_MOST = 14;
const POINTS_BEFORE = 60;
const QUIET_MS = 5000;
const NOTICES_SHOWN = 12;

/** Whether a stream's newest element raises an alarm: a field of that name that is true. */
export function alarmed(buffer) {
  const values = Object.entries(buffer.newest?.values ?? {});
  return values.some(([name, content]) => content === true && /alarm/i.test(name));
}

/** For how long a stream is silent in milliseconds, if that is longer than its rate lets expect. */
function silence(buffer, perSecond) {
  const last = buffer.heardAt ?? Date.parse(buffer.newest?.source_time);
  const passed = Date.now() - last;
  return passed > Math.max(QUIET_MS, perSecond > 0 ? 5000 / perSecond : 0) ? passed : null;
}

/** A number for a line among others: four significant digits, the integer part whole. */
function brief(value) {
  return number(Math.abs(value) >= 1000 ? Math.round(value) : Number(value.toPrecision(4)));
}

/** The newest values of a stream in one line of text. */
export function newestText(buffer) {
  const element = buffer.newest;
  if (!element || !buffer.fields) return '';
  const fields = buffer.fields;
  const wave = fields.find((field) => field.type === 'samples');
  if (wave) {
    const stretch = element.values[wave.name];
    const sampling = stretch?.period_s > 0 ? Math.round(1 / stretch.period_s) : null;
    return sampling ? `${sampling} Hz, ${unit(wave.unit) || 'no unit'}` : '';
  }
  const shown = fields.slice(0, 4);
  return shown.map((field, index) => part(element, shown, index)).join('  ');
}

/** One value among several: a word before the number, the unit after the last of that unit. */
function part(element, fields, index) {
  const field = fields[index];
  const content = element.values[field.name];
  if (typeof content === 'boolean') return `${field.name} ${content ? 'yes' : 'no'}`;
  if (typeof content !== 'number') return content ?? '–';
  const name = fields.length > 1 ? `${field.name.split('_').pop()} ` : '';
  const isLast = !fields.slice(index + 1).some((later) => later.unit === field.unit);
  return `${name}${brief(content)}${isLast && field.unit ? ` ${unit(field.unit)}` : ''}`;
}

function attention(number) {
  return number === 1 ? 'needs attention' : 'need attention';
}

/** The name of a device, where a notice gives its key. */
function called(subject) {
  return device(subject)?.name || subject;
}

/** A notice as text, without repeating the name. */
function noticeText({ subject, text }) {
  const name = called(subject);
  const rest = text.startsWith(name) ? text.slice(name.length).replace(/^:\s*/, '') : text;
  return [h('b', null, name), ' ', rest];
}

function figure(label, href) {
  const value = h('b', null, '–');
  const more = h('small');
  return {
    node: h('a', { class: 'figure', href }, h('span', null, label), value, more),
    value,
    more,
  };
}

function column(title, href, nothing) {
  const list = h('ol', { class: 'stations' });
  const rest = h('a', { class: 'rest', href });
  const none = h('p', { class: 'quiet' }, nothing);
  return {
    none,
    node: h('section', null, h('h2', null, h('a', { href }, title)), list, none, rest),
    list,
    rest,
  };
}

function station(href, withSpark, name) {
  const row = { sign: h('span', { class: 'at' }), name: h('b'), more: h('small') };
  row.spark = withSpark ? spark(live.buffer(name)) : null;
  if (withSpark) before(name, POINTS_BEFORE);
  row.node = h(
    'li',
    null,
    h('a', { href }, row.sign, h('span', { class: 'words' }, row.name, row.more), row.spark?.node),
  );
  row.node.chappeRow = row;
  return row.node;
}

/** Opens the page. */
export function open(root) {
  const figures = {
    devices: figure('devices', '#/devices'),
    streams: figure('streams', '#/streams'),
    sensors: figure('virtual sensors', '#/sensors'),
    drops: figure('dropped', '#/dropped'),
  };
  const columns = {
    devices: column('Devices', '#/devices', 'Looking for devices …'),
    streams: column('Streams', '#/streams', 'Streams come with the devices.'),
    sensors: column('Virtual sensors', '#/sensors', 'A file in the folder of sensors makes one.'),
  };
  const wires = svg('svg', { class: 'wires', 'aria-hidden': 'true' });
  const line = h(
    'div',
    { class: 'line' },
    wires,
    Object.values(columns).map((one) => one.node),
  );
  const trouble = h('div');
  const noticeList = h('ol', { class: 'notices' });
  const quiet = h('p', { class: 'quiet' }, 'No notices since this page was opened.');
  replace(
    root,
    h('h1', { class: 'unseen' }, 'Overview'),
    trouble,
    h(
      'div',
      { class: 'figures' },
      Object.values(figures).map((one) => one.node),
    ),
    line,
    h('section', { class: 'below' }, h('h2', null, 'Notices'), quiet, noticeList),
  );
  const rows = new Set();
  const shown = { streams: [] };

  function fillColumn(which, items, keyOf, hrefOf, update, stream) {
    const part = columns[which];
    keyed(
      part.list,
      items.slice(0, ROWS_MOST),
      keyOf,
      (item) => {
        const node = station(hrefOf(item), stream !== null, stream?.(item));
        rows.add(node.chappeRow);
        return node;
      },
      (node, item) => update(node.chappeRow, item),
    );
    const hidden = items.length - ROWS_MOST;
    part.none.hidden = items.length > 0;
    part.rest.hidden = hidden <= 0;
    setText(part.rest, hidden > 0 ? `and ${count(hidden)} more` : '');
    for (const row of [...rows]) {
      if (row.node.isConnected) continue;
      row.spark?.end();
      rows.delete(row);
    }
  }

  function fill() {
    const devices = [...(model.devices ?? [])].sort((a, b) =>
      (a.name || a.key).localeCompare(b.name || b.key),
    );
    const order = new Map(devices.map((one, index) => [one.key, index]));
    const virtual = new Set((model.sensors ?? []).flatMap((one) => [one.name, one.stream]));
    const streams = (model.streams ?? [])
      .filter((one) => !virtual.has(one.source) && !virtual.has(one.name))
      .sort((a, b) => (order.get(a.source) ?? 1e6) - (order.get(b.source) ?? 1e6));
    shown.streams = streams.slice(0, ROWS_MOST).map((one) => one.name);
    fillColumn(
      'devices',
      devices,
      (one) => one.key,
      (one) => `#/devices/${encodeURIComponent(one.key)}`,
      (row, one) => {
        setSign(row.sign, one.state);
        setText(row.name, one.name || one.key);
        setText(
          row.more,
          one.state === 'usable'
            ? (one.types ?? [])
                .map(local)
                .filter((type) => type !== 'Device')
                .join(', ') ||
                one.model ||
                ''
            : one.reason,
        );
        row.node.chappeKey = one.key;
      },
      null,
    );
    fillColumn(
      'streams',
      streams,
      (one) => one.name,
      (one) => `#/streams/${encodeURIComponent(one.name)}`,
      (row, one) => {
        setText(row.name, one.name);
        row.node.chappeStream = one.name;
        row.node.chappeSource = one.source;
        row.node.chappeRate = one.rate_per_s;
      },
      (one) => one.name,
    );
    fillColumn(
      'sensors',
      model.sensors ?? [],
      (one) => one.name,
      (one) => `#/sensors/${encodeURIComponent(one.name)}`,
      (row, one) => {
        setSign(row.sign, one.state);
        setText(row.name, one.name);
        row.node.chappeStream = one.state === 'running' ? (one.stream ?? one.name) : null;
        row.node.chappeBound = (one.sources ?? []).flatMap((from) =>
          (from.bound ?? []).map((b) => b.stream),
        );
        if (one.state === 'running') return;
        setText(row.more, waitingFor(one));
        row.more.className = '';
      },
      (one) => one.stream ?? one.name,
    );
    fillFigures();
    const failed = Object.values(errors).find(Boolean);
    replace(trouble, failed ? problem(failed) : null);
    requestAnimationFrame(draw);
  }

  function fillFigures() {
    const states = (items, state) => (items ?? []).filter((one) => one.state === state).length;
    const all = (items, words) => (items?.length ? words : items ? 'none yet' : '');
    const list = (parts) =>
      parts
        .filter(([n]) => n > 0)
        .map(([n, w]) => `${n} ${w}`)
        .join(', ');
    setText(figures.devices.value, model.devices ? states(model.devices, 'usable') : '–');
    setText(
      figures.devices.more,
      list([
        [states(model.devices, 'attention'), attention(states(model.devices, 'attention'))],
        [states(model.devices, 'offline'), 'offline'],
        [states(model.devices, 'gone'), 'gone'],
      ]) || all(model.devices, 'all usable'),
    );
    setText(figures.streams.value, count(model.streams?.length));
    setText(figures.streams.more, perSecond(live.arrivals()));
    setText(figures.sensors.value, model.sensors ? states(model.sensors, 'running') : '–');
    setText(
      figures.sensors.more,
      list([
        [states(model.sensors, 'waiting'), 'waiting'],
        [states(model.sensors, 'failed'), 'failed'],
      ]) || all(model.sensors, 'all running'),
    );
    const drops = (model.drops ?? []).reduce((sum, one) => sum + one.count, 0);
    setText(figures.drops.value, model.drops ? count(drops) : '–');
    setText(
      figures.drops.more,
      drops === 0 ? '' : `${model.drops.length} reason${model.drops.length === 1 ? '' : 's'}`,
    );
  }

  function draw() {
    if (!line.isConnected) return;
    const frame = line.getBoundingClientRect();
    const place = (node) => node.getBoundingClientRect();
    const paths = [];
    const wire = (from, to, className) => {
      const a = place(from.firstChild);
      const b = place(to.firstChild);
      if (b.left <= a.right) return;
      const [x1, y1] = [a.right - frame.left, a.top + a.height / 2 - frame.top];
      const [x2, y2] = [b.left - frame.left, b.top + b.height / 2 - frame.top];
      const half = (x1 + x2) / 2;
      paths.push(
        svg('path', {
          class: className,
          d: `M${x1} ${y1}C${half} ${y1} ${half} ${y2} ${x2} ${y2}`,
        }),
      );
    };
    const streams = [...columns.streams.list.children];
    for (const device of columns.devices.list.children) {
      for (const one of streams)
        if (one.chappeSource === device.chappeKey) wire(device, one, 'wire');
    }
    for (const one of columns.sensors.list.children) {
      for (const from of streams) {
        if (one.chappeBound?.includes(from.chappeStream)) wire(from, one, 'wire bound');
      }
    }
    setAttribute(wires, 'viewBox', `0 0 ${frame.width} ${frame.height}`);
    wires.replaceChildren(...paths);
  }

  function fillNotices() {
    quiet.hidden = live.notices.length > 0;
    keyed(
      noticeList,
      live.notices.slice(0, NOTICES_SHOWN),
      (one) => `${one.at} ${one.kind} ${one.subject} ${one.text}`,
      (one) =>
        h(
          'li',
          { 'data-kind': one.kind },
          h('time', { datetime: one.at }, moment(one.at)),
          h('span', { class: 'kind' }, one.kind),
          h('p', null, noticeText(one)),
        ),
    );
  }

  const endValues = animate(500, () => {
    for (const row of rows) {
      if (!row.node.chappeStream) continue;
      const buffer = live.buffer(row.node.chappeStream);
      const silent = silence(buffer, row.node.chappeRate);
      setText(row.more, silent ? `silent for ${age(silent)}` : newestText(buffer));
      row.more.className = silent || alarmed(buffer) ? 'old' : '';
    }
  });
  const observer = new ResizeObserver(draw);
  observer.observe(line);
  fill();
  fillNotices();
  return {
    changed: fill,
    heard: (kind) => kind === 'notice' && fillNotices(),
    tick: fillFigures,
    streams: () => shown.streams,
    close() {
      endValues();
      observer.disconnect();
      for (const row of rows) row.spark?.end();
    },
  };
}

/** Why a virtual sensor does not run, in one line. */
export function waitingFor(sensor) {
  if (sensor.state === 'failed') {
    const error = sensor.error;
    if (!error) return 'failed';
    return typeof error === 'string' ? error : (error.message ?? error.detail ?? 'failed');
  }
  const unbound = (sensor.sources ?? []).find((one) => !(one.bound ?? []).length);
  return unbound?.unbound_reason ?? sensor.state;
}
