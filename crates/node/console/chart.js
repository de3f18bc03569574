// A live chart: uPlot with our axes, moving with the clock, readable by keyboard. The library draws
// points and axes only; legend, pause and reading are ours.

import { drawBands } from './bands.js';
import { h, setText } from './dom.js';
import { number, clock, unit as unitText } from './format.js';
import { animate, colour, onScheme, series } from './frames.js';
import { follow } from './spark.js';

const WAVE_EVERY_MS = 33;
const SLOW_EVERY_MS = 100;
const POINTS_SHOWN_MOST = 80;
const HEIGHT_WIDE = 260;
const HEIGHT_NARROW = 200;

function axis(extra) {
  return {
    stroke: colour('muted'),
    font: '11px system-ui, "Segoe UI", "Liberation Sans", sans-serif',
    grid: { stroke: colour('grid'), width: 1 },
    ticks: { stroke: colour('grid'), width: 1, size: 4 },
    ...extra,
  };
}

function spread(columns) {
  let low = Infinity;
  let high = -Infinity;
  for (const column of columns) {
    for (let index = 0; index < column.length; index += 1) {
      if (column[index] < low) low = column[index];
      if (column[index] > high) high = column[index];
    }
  }
  return low > high ? null : [low, high];
}

/** Grows at once, shrinks slowly: an axis that jumps with every beat cannot be read. */
function settle(shown, found) {
  if (!found) return shown ?? [0, 1];
  const room = (found[1] - found[0]) * 0.08 || Math.abs(found[0]) * 0.05 || 1;
  const wanted = [found[0] - room, found[1] + room];
  if (!shown) return wanted;
  const ease = (was, want, grows) => (grows ? want : was + (want - was) * 0.03);
  return [
    ease(shown[0], wanted[0], wanted[0] < shown[0]),
    ease(shown[1], wanted[1], wanted[1] > shown[1]),
  ];
}

/** Where a line is interrupted: typed arrays have no null, so that NaN is searched for. */
function holes(plot, column, from, to) {
  const [times] = plot.data;
  const values = plot.data[column];
  const found = [];
  for (let index = from; index <= to; index += 1) {
    if (!Number.isNaN(values[index])) continue;
    const at = (point) =>
      Math.round(plot.valToPos(times[Math.max(from, Math.min(to, point))], 'x', true));
    found.push([at(index - 1), at(index + 1)]);
  }
  return found;
}

/**
 * A chart of `fields` (one unit) of a stream.
 * `control` is shared by the charts of one page: { paused, seconds }.
 */
export class Chart {
  constructor({ buffer, fields, wave, control, title }) {
    this.buffer = buffer;
    this.fields = fields;
    this.wave = wave;
    this.control = control;
    this.edge = 0;
    this.shown = null;
    this.drawn = null;
    this.columns = fields.map((f) => buffer.scalars.indexOf(f));
    this.unit = unitText(fields[0].unit);
    this.values = fields.map(() => h('output', { class: 'value' }, '–'));
    this.reading = h('p', { class: 'reading', 'aria-live': 'polite' });
    this.plotHolder = h('div', {
      class: 'plot',
      tabindex: '0',
      role: 'group',
      'aria-label': `Chart of ${title}. Arrow keys read values, space pauses.`,
      onkeydown: (event) => this.key(event),
      onblur: () => this.leave(),
    });
    this.node = h(
      'figure',
      { class: 'chart' },
      h(
        'figcaption',
        null,
        fields.map((field, index) =>
          h(
            'span',
            { class: `legend s${(index % 6) + 1}` },
            h('i', { 'aria-hidden': 'true' }),
            h('b', null, field.name),
            ' ',
            this.values[index],
            this.unit
              ? h('span', { class: 'unit', title: `UCUM: ${field.unit}` }, ` ${this.unit}`)
              : null,
          ),
        ),
      ),
      this.plotHolder,
      this.reading,
    );
    this.observer = new ResizeObserver(([entry]) => this.resize(entry.contentRect.width));
    this.observer.observe(this.plotHolder);
    this.endScheme = onScheme(() => this.rebuild());
    this.end = animate(wave ? WAVE_EVERY_MS : SLOW_EVERY_MS, (passed) => this.draw(passed));
  }

  ring() {
    return this.wave
      ? (this.buffer.waves.get(this.fields[0].name)?.ring ?? null)
      : this.buffer.ring;
  }

  build(width) {
    const narrow = width < 480;
    const paths =
      this.fields[0].type === 'boolean' ? globalThis.uPlot.paths.stepped({ align: 1 }) : undefined;
    const options = {
      width,
      height: narrow ? HEIGHT_NARROW : HEIGHT_WIDE,
      legend: { show: false },
      cursor: { drag: { x: false, y: false }, points: { size: 7 }, y: false },
      scales: {
        x: { time: true, range: () => this.times() },
        y: { range: () => this.shown ?? [0, 1] },
      },
      axes: [
        axis({ space: narrow ? 70 : 90, size: 28, values: (_, ticks) => labels(ticks) }),
        axis({ size: narrow ? 44 : 56, values: (_, ticks) => ticks.map(number) }),
      ],
      series: [
        {},
        ...this.fields.map((field, index) => ({
          label: field.name,
          stroke: series(index),
          width: 1.5,
          paths,
          gaps: holes,
          points: {
            show: (_, __, from, to) => !this.wave && to - from < POINTS_SHOWN_MOST,
            size: 4,
          },
        })),
      ],
      hooks: {
        setCursor: [(plot) => this.read(plot)],
        draw: [(plot) => drawBands(plot, this.control)],
      },
    };
    this.plotHolder.replaceChildren();
    this.plot = new globalThis.uPlot(options, [[], ...this.fields.map(() => [])], this.plotHolder);
    this.drawn = null;
  }

  rebuild() {
    const width = this.plot?.width;
    if (!width) return;
    this.plot.destroy();
    this.build(width);
  }

  resize(width) {
    const whole = Math.floor(width);
    if (whole < 50 || whole === this.plot?.width) return;
    this.plot?.destroy();
    this.build(whole);
  }

  times() {
    const right = this.edge || Date.now() / 1000;
    return [right - this.control.seconds, right];
  }

  draw(passed) {
    const ring = this.ring();
    if (!this.plot || !ring || ring.length === 0) return;
    if (this.control.paused) {
      if (this.drawn === 'paused') return;
      this.drawn = 'paused';
    } else {
      this.edge = this.wave ? follow(this.edge, passed, ring.newest) : ring.newest;
      const state = `${this.edge} ${this.control.seconds}`;
      if (state === this.drawn) return;
      this.drawn = state;
      this.showNewest(ring);
    }
    const [times, ...all] = ring.view(...this.times());
    const columns = this.wave ? all : this.columns.map((column) => all[column]);
    this.shown = settle(this.shown, spread(columns));
    this.plot.setData([times, ...columns], true);
  }

  showNewest(ring) {
    const [, ...all] = ring.tail(1);
    this.values.forEach((node, index) => {
      const column = this.wave ? 0 : this.columns[index];
      setText(node, number(all[column][0]));
    });
  }

  /** Draws once more, after the pause or the width of time was changed. */
  touch() {
    this.drawn = null;
    this.shown = null;
  }

  key(event) {
    const { plot } = this;
    if (!plot || plot.data[0].length === 0) return;
    const last = plot.data[0].length - 1;
    const at = plot.cursor.idx ?? last;
    const step = event.shiftKey ? Math.max(1, Math.round(last / 20)) : 1;
    const moves = { ArrowLeft: at - step, ArrowRight: at + step, Home: 0, End: last };
    if (event.key === 'Escape') this.leave();
    if (!(event.key in moves)) return;
    event.preventDefault();
    const next = Math.max(0, Math.min(last, moves[event.key]));
    plot.setCursor({ left: plot.valToPos(plot.data[0][next], 'x'), top: 10 });
  }

  leave() {
    this.plot?.setCursor({ left: -10, top: -10 });
  }

  read(plot) {
    const index = plot.cursor.idx;
    if (index === null || index === undefined || plot.cursor.left < 0) {
      setText(this.reading, '');
      return;
    }
    const parts = this.fields.map(
      (field, column) => `${field.name} ${number(plot.data[column + 1][index])}`,
    );
    setText(
      this.reading,
      `${clock(plot.data[0][index] * 1000, 3)}   ${parts.join('   ')} ${this.unit}`,
    );
  }

  destroy() {
    this.end();
    this.endScheme();
    this.observer.disconnect();
    this.plot?.destroy();
  }
}

function labels(ticks) {
  const parts = ticks.length > 1 && ticks[1] - ticks[0] < 1 ? 1 : 0;
  return ticks.map((tick) => clock(tick * 1000, parts));
}
