// DDS topics: the participant and its library, what is published and read, how each writer is paced,
// matched endpoints, and endpoints with incompatible quality of service.

import { facts, h, problem, replace, table } from './dom.js';
import { count, paced } from './format.js';
import { errors, model, refresh } from './model.js';
import { paces } from './pace.js';
import { setSign, word } from './semaphore.js';
import { quality, troubles } from './topic-words.js';

const TOPICS_EVERY_MS = 1_000;
const SIGNS = { running: 'running', starting: 'opening', given_up: 'failed' };

/** Opens the page. */
export function open(root) {
  const trouble = h('div');
  const head = h('div');
  const body = h('div');
  const lines = paces();
  let drawn = null;
  replace(root, h('h1', null, 'DDS'), trouble, head, body);

  function link(stream) {
    return h('a', { href: `#/streams/${encodeURIComponent(stream)}` }, stream);
  }

  function wrong(one, words) {
    const hint = one.last_error ?? one.hint;
    return [words, hint ? h('span', { class: 'detail' }, hint) : null].filter(Boolean);
  }

  function writerRow(one, index) {
    const pacer = one.pacer;
    return [
      h('b', null, one.topic),
      h('span', { title: one.type_name }, quality(one.qos)),
      count(one.matched),
      count(one.sent),
      count(one.acknowledged),
      count(one.unacknowledged),
      pacer
        ? [lines.line(`${one.topic} ${index}`, pacer.occupation), ' ', paced(pacer.state, pacer.period_s)]
        : '',
      `${one.blocked_s.toFixed(1)} s`,
      troubles(one),
    ];
  }

  function readerRow(one) {
    return [
      h('b', null, one.topic),
      h('span', { title: one.type_name }, quality(one.qos)),
      count(one.matched),
      count(one.received),
      troubles(one),
    ];
  }

  function publicationRow(one) {
    return [
      link(one.stream),
      one.topic,
      one.acknowledge,
      one.delivered ?? '',
      count(one.lag_elements),
      count(one.again),
      wrong(one, one.refused ? `${count(one.refused)} too large` : null),
    ];
  }

  function subscriptionRow(one) {
    const dropped = ['repeated', 'early', 'malformed', 'foreign', 'rollbacks'];
    const words = dropped.filter((name) => one[name]).map((name) => `${count(one[name])} ${name}`);
    return [one.topic, link(one.stream), one.stored ?? '', count(one.received), words.join(', '), wrong(one, null)];
  }

  function part(title, columns, rows) {
    return rows.length ? [h('h2', null, title), table(title, columns, rows, 'stack links')] : null;
  }

  function showHead(participant) {
    const mark = h('span', { class: 'at' });
    setSign(mark, SIGNS[participant.state] ?? 'opening');
    replace(
      head,
      h('p', { class: 'lead' }, mark, ' ', h('b', null, word(SIGNS[participant.state])), `, ${participant.backend}`),
      participant.last_error
        ? problem({ title: 'last error', detail: participant.last_error, hint: participant.hint })
        : null,
      facts([
        ['domain', String(participant.domain)],
        ['participant', participant.guid ? h('code', null, participant.guid) : null],
        ['remote participants', count(participant.peers)],
        ['restarts', count(participant.restarts)],
        ['panics, stalls, aborts', [participant.panics, participant.stalls, participant.aborts].map(count).join(', ')],
        ['warnings', `${count(participant.warnings)} ${participant.newest_warnings.at(-1) ?? ''}`],
        ['abandoned threads', participant.abandoned ? count(participant.abandoned) : null],
      ]),
    );
  }

  function fill() {
    replace(trouble, errors.topics ? problem(errors.topics) : null);
    const topics = model.topics;
    if (!topics) return;
    if (!topics.participant) {
      replace(
        head,
        h('p', { class: 'lead' }, 'No topics.'),
        h('p', { class: 'quiet' }, 'Wrappers and exporters of kind ', h('code', null, 'dds'), ' define topics.'),
      );
      replace(body);
      return;
    }
    const state = JSON.stringify(topics);
    if (state === drawn || body.contains(document.activeElement)) return;
    drawn = state;
    const { participant, publications, subscriptions } = topics;
    const { writers, readers } = participant;
    showHead(participant);
    lines.keep(writers.map((one, index) => `${one.topic} ${index}`));
    const mismatched = [...writers, ...readers].flatMap((one) =>
      one.mismatched.map((words) => [h('b', null, one.topic), words]),
    );
    replace(
      body,
      part('Published streams', ['stream', 'topic', 'acknowledged when', 'delivered', 'lag', 'retransmitted', 'trouble'], publications.map(publicationRow)),
      part('Topics read into streams', ['topic', 'stream', 'stored', 'received', 'dropped', 'trouble'], subscriptions.map(subscriptionRow)),
      part('Incompatible quality of service', ['topic', 'endpoint and mismatch'], mismatched),
      part('Writers', ['topic', 'quality of service', 'readers', 'sent', 'acknowledged', 'in flight', 'pace', 'blocked', 'trouble'], writers.map(writerRow)),
      part('Readers', ['topic', 'quality of service', 'writers', 'received', 'trouble'], readers.map(readerRow)),
    );
  }
  const timer = setInterval(() => {
    if (!document.hidden) refresh('topics');
  }, TOPICS_EVERY_MS);
  refresh('topics');
  fill();
  return {
    changed: (what) => what === 'topics' && fill(),
    close() {
      clearInterval(timer);
      lines.end();
    },
  };
}
