// Wrappers and exporters: their states and the reasons, their streams, and the file of one.

import { facts, h, problem, replace, table } from './dom.js';
import { count } from './format.js';
import { errors, model, refresh } from './model.js';
import { sign, word } from './semaphore.js';

const WRAPPERS_EVERY_MS = 2_000;
const SIGNS = { running: 'running', waiting: 'waiting', trouble: 'broken', failed: 'failed' };
const WORDS = { trouble: 'trouble' };

/** Opens the page; `subject` is a wrapper or an exporter. */
export function open(root, { subject }) {
  const trouble = h('div');
  const body = h('div');
  let drawn = null;
  replace(root, h('h1', null, subject ?? 'Wrappers and exporters'), trouble, body);

  function state(one) {
    const name = SIGNS[one.state] ?? 'waiting';
    return [sign(name), ' ', WORDS[one.state] ?? word(name)];
  }

  function why(one) {
    const { message, line, key } = one.error ?? {};
    const place = [line ? `line ${line}` : null, key].filter(Boolean).join(', ');
    const reason = message ? `${place ? `${place}: ` : ''}${message}` : one.reason;
    const hint = one.error?.hint ?? one.hint;
    return [reason, hint ? h('span', { class: 'detail' }, hint) : null].filter(Boolean);
  }

  function link(one) {
    return h('a', { href: `#/wrappers/${encodeURIComponent(one.name)}` }, h('b', null, one.name));
  }

  function streamLink(name) {
    return h('a', { href: `#/streams/${encodeURIComponent(name)}` }, name);
  }

  function wrapperRow(one) {
    return [
      link(one),
      one.kind,
      state(one),
      count(one.streams.length),
      count(one.elements),
      one.dead_letters ? count(one.dead_letters) : '',
      why(one),
    ];
  }

  function exporterRow(one) {
    return [
      link(one),
      one.kind,
      state(one),
      count(one.streams.length),
      count(one.elements),
      one.refused ? count(one.refused) : '',
      why(one),
    ];
  }

  function list() {
    const { wrappers, exporters } = model.wrappers;
    if (!wrappers.length && !exporters.length) {
      replace(
        body,
        h('p', { class: 'lead' }, 'No wrappers.'),
        h('p', { class: 'quiet' }, 'A file in the directory ', h('code', null, 'wrappers'), ' reads a peer into streams; one in ', h('code', null, 'exporters'), ' writes streams to a peer.'),
      );
      return;
    }
    const columns = ['name', 'kind', 'state', 'streams', 'elements'];
    replace(
      body,
      wrappers.length
        ? [h('h2', null, 'Wrappers'), table('Wrappers', [...columns, 'dead letters', 'reason'], wrappers.map(wrapperRow), 'stack links')]
        : null,
      exporters.length
        ? [h('h2', null, 'Exporters'), table('Exporters', [...columns, 'refused', 'reason'], exporters.map(exporterRow), 'stack links')]
        : null,
    );
  }

  function one() {
    const { wrappers, exporters } = model.wrappers;
    const wrapper = wrappers.find((it) => it.name === subject);
    const found = wrapper ?? exporters.find((it) => it.name === subject);
    if (!found) {
      replace(body, h('p', { class: 'lead' }, 'There is none of this name.'));
      return;
    }
    const streams = wrapper
      ? wrapper.streams.map((name) => [streamLink(name)])
      : found.streams.map((it) => [streamLink(it.stream), count(it.read), it.missed ? count(it.missed) : '']);
    const inputs = (wrapper?.inputs ?? []).map((it) => [streamLink(it.stream), count(it.read), it.missed ? count(it.missed) : '']);
    const lost = Object.entries(found.lost ?? {}).map(([reason, times]) => `${count(times)} ${reason}`);
    replace(
      body,
      h('p', { class: 'lead' }, state(found), ', ', found.kind),
      h('p', null, why(found)),
      facts([
        ['file', h('code', null, found.file)],
        ['purpose', found.description],
        ['elements', count(found.elements)],
        ['newest', found.newest_time],
        ['not stored yet', wrapper ? `${count(wrapper.unstored_bytes)} bytes` : null],
        ['undecodable', wrapper?.undecodable ? count(wrapper.undecodable) : null],
        ['dead letters', found.dead_letters ? count(found.dead_letters) : null],
        ['lost', lost.length ? lost.join(', ') : null],
        ['opened again', found.restarts ? count(found.restarts) : null],
      ]),
      streams.length
        ? table('Streams', wrapper ? ['stream'] : ['stream', 'exported up to', 'missed'], streams, 'stack links')
        : null,
      inputs.length ? table('Inputs', ['stream', 'processed up to', 'missed'], inputs, 'stack links') : null,
      found.toml ? [h('h2', null, 'File'), h('pre', null, found.toml)] : null,
    );
  }

  function fill() {
    replace(trouble, errors.wrappers ? problem(errors.wrappers) : null);
    if (!model.wrappers) return;
    const shown = JSON.stringify(model.wrappers);
    if (shown === drawn || body.contains(document.activeElement)) return;
    drawn = shown;
    if (subject) one();
    else list();
  }

  const timer = setInterval(() => {
    if (!document.hidden) refresh('wrappers');
  }, WRAPPERS_EVERY_MS);
  refresh('wrappers');
  fill();
  return {
    changed: (what) => what === 'wrappers' && fill(),
    close: () => clearInterval(timer),
  };
}
