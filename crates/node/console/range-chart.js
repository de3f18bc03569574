// A chart of all that a stream keeps: for each bucket of time the mean as a line, least and greatest as
// a band. The node makes the buckets, so that a year costs as much as a minute. Wheel, drag and keys
// zoom and move the window.

import { path, query, read } from './api.js';
import { h, setText } from './dom.js';
import { count, moment, number, unit as unitText } from './format.js';
import { colour, onScheme, series } from './frames.js';
import { columns, pan, within, zoom } from './time-window.js';

const HEIGHT = 220;
const PIXELS_PER_BUCKET = 2;
const SETTLE_MS = 150;
const FIRST_BUCKETS = 2;

/** The charts of the numeric fields of a stream, with one window of time. */
export class RangeCharts {
  constructor(name) {
    this.name = name;
    this.bounds = null;
    this.window = null;
    this.plots = [];
    this.asked = 0;
    this.stamp = h('span', { class: 'stamp', role: 'status' });
    this.plotHolder = h('div', {
      class: 'charts',
      tabindex: '0',
      role: 'group',
      'aria-label': `History of ${name}. Plus and minus zoom, arrow keys move, zero shows all.`,
      onkeydown: (event) => this.key(event),
    });
    const button = (label, title, act) =>
      h('button', { type: 'button', title, 'aria-label': title, onclick: act }, label);
    this.node = h(
      'section',
      null,
      h('h2', null, 'History'),
      h(
        'div',
        { class: 'bar' },
        button('−', 'Zoom out', () => this.zoom(2)),
        button('+', 'Zoom in', () => this.zoom(0.5)),
        button('◀', 'Earlier', () => this.pan(-0.5)),
        button('▶', 'Later', () => this.pan(0.5)),
        button('All', 'All that is kept', () => this.all()),
        this.stamp,
      ),
      this.plotHolder,
    );
    this.observer = new ResizeObserver(() => this.ask());
    this.observer.observe(this.plotHolder);
    this.endScheme = onScheme(() => this.ask());
    this.all();
  }

  /** Shows all times; asks the node which these are. */
  async all() {
    try {
      const whole = await this.range({ buckets: FIRST_BUCKETS });
      this.bounds = [Date.parse(whole.from) / 1000, Date.parse(whole.to) / 1000];
      this.window = within(this.bounds, this.bounds);
      this.ask();
    } catch (error) {
      this.refused(error);
    }
  }

  range(values) {
    return read(query(path('streams', this.name, 'range'), values));
  }

  refused(error) {
    setText(this.stamp, [error.message, error.hint].filter(Boolean).join(': '));
  }

  zoom(factor, at) {
    if (!this.window) return;
    const middle = (this.window[0] + this.window[1]) / 2;
    this.show(zoom(this.window, factor, at ?? middle, this.bounds));
  }

  pan(part) {
    if (this.window) this.show(pan(this.window, part, this.bounds));
  }

  show(window) {
    this.window = window;
    const [min, max] = window;
    // What is there is stretched until the node has answered.
    this.plots.forEach((plot) => plot.setScale('x', { min, max }));
    this.ask();
  }

  key(event) {
    const acts = {
      '+': () => this.zoom(0.5),
      '-': () => this.zoom(2),
      ArrowLeft: () => this.pan(-0.25),
      ArrowRight: () => this.pan(0.25),
      0: () => this.all(),
    };
    if (!acts[event.key] || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    acts[event.key]();
  }

  /** Asks for the window, once it is left alone for a moment. */
  ask() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.fill(), SETTLE_MS);
  }

  async fill() {
    const width = Math.floor(this.plotHolder.clientWidth);
    if (!this.window || width < 50) return;
    this.asked += 1;
    const { asked } = this;
    const [from, to] = this.window.map((time) => new Date(time * 1000).toISOString());
    const buckets = Math.max(50, Math.floor(width / PIXELS_PER_BUCKET));
    const [first, last] = this.bounds;
    // The ends are rounded to milliseconds, by which the last element must not be lost.
    const isWhole = to <= from || (this.window[0] <= first && this.window[1] >= last);
    try {
      const range = await this.range(isWhole ? { buckets } : { from, to, buckets });
      if (asked !== this.asked) return;
      const lacks = range.damaged ? `, up to ${count(range.damaged)} damaged ones missing` : '';
      setText(this.stamp, `${count(range.elements)} elements${lacks}`);
      this.draw(range, width);
    } catch (error) {
      if (asked === this.asked) this.refused(error);
    }
  }

  draw(range, width) {
    const names = range.fields.map((field) => field.name).join(' ');
    if (this.names === `${names} ${width} ${colour('grid')}`) {
      this.plots.forEach((plot, at) => {
        plot.setData(columns(range, range.fields[at].name), false);
        const [min, max] = this.window;
        plot.setScale('x', { min, max });
      });
      return;
    }
    this.names = `${names} ${width} ${colour('grid')}`;
    this.plots.forEach((plot) => plot.destroy());
    this.plotHolder.replaceChildren();
    this.plots = range.fields.map((field, at) => this.plot(range, field, at, width));
  }

  plot(range, field, at, width) {
    const reading = h('output', { class: 'value' }, '–');
    const unit = field.unit ? unitText(field.unit) : '';
    const holder = h('div', { class: 'plot' });
    this.plotHolder.append(
      h(
        'figure',
        { class: 'chart' },
        h(
          'figcaption',
          null,
          h(
            'span',
            { class: `legend s${(at % 6) + 1}` },
            h('i', { 'aria-hidden': 'true' }),
            h('b', null, field.name),
            ' ',
            reading,
            unit ? h('span', { class: 'unit', title: `UCUM: ${field.unit}` }, ` ${unit}`) : null,
          ),
        ),
        holder,
      ),
    );
    const axis = (extra) => ({
      stroke: colour('muted'),
      grid: { stroke: colour('grid'), width: 1 },
      ticks: { stroke: colour('grid'), width: 1, size: 4 },
      ...extra,
    });
    const edge = { stroke: 'transparent', width: 0, points: { show: false } };
    const options = {
      width,
      height: HEIGHT,
      legend: { show: false },
      cursor: { drag: { x: true, y: false, setScale: false }, y: false },
      scales: { x: { time: true, min: this.window[0], max: this.window[1] } },
      axes: [axis({ size: 40 }), axis({ size: 56, values: (_, ticks) => ticks.map(number) })],
      series: [
        {},
        { label: field.name, stroke: series(at), width: 1.5, points: { show: false } },
        { label: 'least', ...edge },
        { label: 'greatest', ...edge },
      ],
      bands: [{ series: [3, 2], fill: `${series(at)}40` }],
      hooks: {
        setSelect: [(plot) => this.select(plot)],
        setCursor: [(plot) => showBucket(plot, reading)],
      },
    };
    const plot = new globalThis.uPlot(options, columns(range, field.name), holder);
    plot.over.addEventListener('wheel', (event) => this.wheel(plot, event), { passive: false });
    plot.over.addEventListener('dblclick', () => this.all());
    return plot;
  }

  /** A stretch that was selected by dragging becomes the window. */
  select(plot) {
    const { left, width } = plot.select;
    if (width < 4) return;
    const at = (pixels) => plot.posToVal(pixels, 'x');
    const window = within([at(left), at(left + width)], this.bounds);
    plot.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
    this.show(window);
  }

  wheel(plot, event) {
    event.preventDefault();
    const sideways = Math.abs(event.deltaX) > Math.abs(event.deltaY) || event.shiftKey;
    if (sideways) {
      this.pan((event.deltaX || event.deltaY) / plot.over.clientWidth);
      return;
    }
    const at = plot.posToVal(event.offsetX, 'x');
    this.zoom(event.deltaY > 0 ? 1.25 : 0.8, at);
  }

  destroy() {
    clearTimeout(this.timer);
    this.asked += 1;
    this.endScheme();
    this.observer.disconnect();
    this.plots.forEach((plot) => plot.destroy());
  }
}

/** Writes the bucket under the cursor. */
function showBucket(plot, output) {
  const { idx } = plot.cursor;
  const [times, means, least, greatest] = plot.data;
  if (idx === null || idx === undefined || means[idx] === null) {
    setText(output, '–');
    return;
  }
  const values = `${number(means[idx])} (${number(least[idx])} to ${number(greatest[idx])})`;
  setText(output, `${values} at ${moment(times[idx] * 1000)}`);
}
