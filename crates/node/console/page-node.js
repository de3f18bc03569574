// The node itself: its identity, health, interfaces and metrics.

import { read } from './api.js';
import { facts, h, problem, replace, setText, table } from './dom.js';
import { bytes, moment, number, since } from './format.js';
import { errors, model } from './model.js';
import { setSign } from './semaphore.js';

const METRICS_EVERY_S = 5;
const METRICS_MOST = 400;
const SAMPLE = /^([A-Za-z_:][\w:]*)(\{.*\})?\s+(\S+)/;

const INTERFACES = [
  ['/docs/', 'Guide'],
  ['/api/v1/openapi.json', 'OpenAPI'],
  ['/api/v1/devices', 'devices'],
  ['/api/v1/kad', 'distributed hash table'],
  ['/api/v1/discovery-proxies', 'discovery proxies'],
  ['/api/v1/entities', 'registry'],
  ['/api/v1/streams', 'streams'],
  ['/api/v1/virtual-sensors', 'virtual sensors'],
  ['/api/v1/drops', 'drops'],
  ['/api/v1/notices', 'notices'],
  ['/metrics', 'metrics'],
  ['/health', 'liveness'],
  ['/ready', 'readiness'],
];

/** Samples of a Prometheus text, without the buckets of histograms. */
export function samples(text) {
  const help = new Map();
  const found = [];
  for (const line of text.split('\n')) {
    const about = /^# HELP (\S+) (.*)$/.exec(line);
    if (about) help.set(about[1], about[2]);
    const sample = line.startsWith('#') ? null : SAMPLE.exec(line);
    if (!sample || sample[1].endsWith('_bucket')) continue;
    found.push({ name: sample[1], labels: sample[2] ?? '', value: Number(sample[3]) });
    if (found.length >= METRICS_MOST) break;
  }
  const base = (name) =>
    help.get(name) ?? help.get(name.replace(/_(total|sum|count|created)$/, '')) ?? '';
  return found.map((one) => ({ ...one, help: base(one.name) }));
}

/** Opens the page. */
export function open(root) {
  const mark = h('span', { class: 'at' });
  const title = h('span');
  const lead = h('p', { class: 'lead' });
  const about = h('div');
  const filter = h('input', {
    type: 'search',
    placeholder: 'name of a metric',
    'aria-label': 'Filter metrics',
    oninput: fillMetrics,
  });
  const metrics = h('div');
  let list = null;
  let beat = 0;
  let kad = null;
  replace(
    root,
    h('h1', null, mark, title),
    lead,
    h(
      'div',
      { class: 'two' },
      h('section', null, h('h2', null, 'This node'), about),
      h(
        'section',
        null,
        h('h2', null, 'Interfaces'),
        facts(INTERFACES.map(([href, what]) => [what, h('a', { href }, h('code', null, href))])),
      ),
    ),
    h('section', null, h('h2', null, 'Metrics'), h('p', { class: 'bar' }, filter), metrics),
  );

  function fill() {
    const { node } = model;
    setText(title, node?.name ?? 'Node');
    if (errors.node) replace(about, problem(errors.node));
    else if (node) {
      replace(
        about,
        facts([
          ['version', node.version],
          ['running for', since(node.started_at)],
          ['started', moment(node.started_at)],
          ['address', h('code', null, node.address)],
          ['resident memory', bytes(node.resident_bytes)],
          ['free on disk', bytes(node.data_directory_free_bytes)],
          ['public key', h('code', null, node.key)],
          ['distributed hash table', kad],
        ]),
      );
    }
  }

  async function health() {
    try {
      await read('/ready');
      setSign(mark, 'usable');
      lead.dataset.state = 'usable';
      replace(lead, h('b', null, 'ready'), ': it takes and stores elements');
    } catch (error) {
      setSign(mark, 'attention');
      lead.dataset.state = 'attention';
      const reasons = (error.reasons ?? []).join('; ') || error.detail || error.title;
      replace(lead, h('b', null, 'not ready'), reasons ? `: ${reasons}` : '');
    }
  }

  async function readKad() {
    try {
      const state = await read('/api/v1/kad');
      const about = state.listening
        ? `${number(state.contacts)} known nodes, ${number(state.records)} stored records, ` +
          `${number(state.publications)} published devices, ${number(state.searches_begun)} searches`
        : 'off';
      if (about !== kad) {
        kad = about;
        fill();
      }
    } catch {
      // The page already shows elsewhere that the node does not answer.
    }
  }

  async function readMetrics() {
    try {
      list = samples(String(await read('/metrics')));
      fillMetrics();
    } catch (error) {
      replace(metrics, problem(error));
    }
  }

  function fillMetrics() {
    if (!list || metrics.contains(document.activeElement)) return;
    const word = filter.value.trim().toLowerCase();
    const found = list.filter((one) =>
      `${one.name}${one.labels}${one.help}`.toLowerCase().includes(word),
    );
    replace(
      metrics,
      table(
        'Metrics',
        ['value', 'metric', 'meaning'],
        found.map((one) => [
          number(one.value),
          h('code', null, one.name, h('small', null, one.labels)),
          one.help,
        ]),
        'stack metrics',
      ),
    );
  }

  function tick() {
    if (beat % METRICS_EVERY_S === 0) {
      health();
      readKad();
      readMetrics();
    }
    beat += 1;
  }
  fill();
  tick();
  return { changed: (kind) => kind === 'node' && fill(), tick, close() {} };
}
