// The file of a virtual sensor in an editor: checked and tried by the node on recorded elements, then written.

import * as api from './api.js';
import { h, problem, replace, setText, table } from './dom.js';
import { count, moment, value } from './format.js';
import { refresh } from './model.js';

const EXAMPLE = `name = "mean"

[[source]]
alias = "input"
stream = "STREAM"
window = "1m"
slide = "10s"

[output]
sql = "select avg(FIELD) as mean from input"

[[output.field]]
name = "mean"
type = "double"
`;

/** The name that a file gives its sensor; null if it has none. */
export function nameIn(text) {
  const head = text.split(/^\s*\[/m)[0];
  const found = /^\s*name\s*=\s*(?:"([^"\\]*)"|'([^']*)')/m.exec(head);
  return found ? (found[1] ?? found[2]) : null;
}

/** A shorter text of the values of an element. */
export function valuesText(element) {
  return Object.entries(element?.values ?? {})
    .map(([name, content]) => `${name} ${content === null ? '–' : value(content)}`)
    .join('  ');
}

/** Rows of the table of a preview: time, input, output; further results of an element below the first. */
export function previewRows(steps, hasSeveral) {
  const rows = [];
  for (const step of steps) {
    const [first, ...more] = step.outputs;
    const source = hasSeveral && step.source ? `${step.source}: ` : '';
    const input = step.element ? `${source}${valuesText(step.element)}` : '(silence)';
    const time = (step.element ?? first)?.source_time;
    rows.push([moment(time), input, first ? valuesText(first) : '']);
    for (const one of more) rows.push([moment(one.source_time), '', valuesText(one)]);
  }
  return rows;
}

/** An editor of the file with this text, or of a new one. */
export function editor(text) {
  const box = h('textarea', {
    rows: 18,
    spellcheck: 'false',
    'aria-label': 'The file of the virtual sensor',
    onkeydown: (event) => (event.ctrlKey || event.metaKey) && event.key === 'Enter' && tried(),
  });
  box.value = text ?? EXAMPLE;
  const last = h(
    'select',
    { 'aria-label': 'Time of the elements' },
    [
      ['60', '1 minute'],
      ['300', '5 minutes'],
      ['3600', '1 hour'],
      ['86400', '1 day'],
    ].map(([seconds, words]) =>
      h('option', { value: seconds, selected: seconds === '300' }, `the last ${words}`),
    ),
  );
  const state = h('span', { class: 'stamp', role: 'status' });
  const answer = h('div');

  function address(...more) {
    const name = nameIn(box.value);
    if (name === null)
      throw new api.ApiError(0, {
        title: 'the file has no name',
        hint: 'begin it with name = "NAME"',
      });
    return api.path('virtual-sensors', name, ...more);
  }

  async function run(words, work) {
    setText(state, words);
    try {
      await work();
    } catch (error) {
      setText(state, '');
      replace(answer, problem(error));
    }
  }

  const tried = () =>
    run('trying …', async () => {
      const url = api.query(address('preview'), { last_s: last.value });
      show(await api.file('POST', url, box.value));
    });

  const written = () =>
    run('writing …', async () => {
      await api.file('PUT', address(), box.value);
      setText(state, 'written; it takes effect within a second');
      replace(answer);
      refresh('sensors');
    });

  function show(preview) {
    const { elements_in: taken, elements_out: results, left_out: left } = preview;
    setText(state, `valid: ${count(taken)} elements in, ${count(results)} out`);
    const notes = [
      left ? `${count(left)} older rows are left out` : null,
      ...preview.unused.map((one) => `${count(one.count)} ${one.reason}${one.source ? ` of ${one.source}` : ''}`),
      preview.dead_letters ? `${count(preview.dead_letters)} would be dead letters` : null,
    ].filter(Boolean);
    const from = preview.inputs.map((one) => `${one.source} = ${one.stream}`).join(', ');
    replace(
      answer,
      preview.failures.map((detail) => problem({ title: 'an evaluation failed', detail })),
      h('p', { class: 'quiet' }, [from, ...notes].join('; ')),
      table('Preview', ['time', 'input', 'output'], previewRows(preview.steps, preview.inputs.length > 1)),
    );
  }

  return h(
    'div',
    { class: 'editor' },
    box,
    h(
      'div',
      { class: 'bar' },
      h('button', { type: 'button', onclick: tried }, 'Check and try'),
      h('div', null, last),
      h('button', { class: 'main', type: 'button', onclick: written }, 'Write the file'),
      h('small', null, 'Ctrl+Enter tries'),
      state,
    ),
    answer,
  );
}
