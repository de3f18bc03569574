// The console's bounded memory of one stream: its newest elements and the points of its charts.

import { Ring } from './ring.js';

const RECENT = 60;
const WAITING = 200;
const SCALAR_POINTS = 6000;
const WAVE_SECONDS = 60;
const WAVE_POINTS_LEAST = 2048;
const WAVE_POINTS_MOST = 65_536;

/** Whether a field is drawn on a line with others, as opposed to a waveform or a word. */
export function isScalar(field) {
  return field.type === 'double' || field.type === 'integer' || field.type === 'boolean';
}

function plotted(value) {
  if (typeof value === 'number') return value;
  if (typeof value === 'boolean') return value ? 1 : 0;
  return NaN;
}

/** The elements of one stream that were seen since the page was opened, and some before. */
export class StreamBuffer {
  constructor(name) {
    this.name = name;
    this.fields = null;
    this.scalars = [];
    this.ring = null;
    this.waves = new Map();
    this.recent = [];
    this.waiting = [];
    this.seen = 0;
    this.newest = null;
    this.heardAt = null;
  }

  /** Learns the schema. Points are forgotten when it is another one than before. */
  describe(fields) {
    const same = this.fields && JSON.stringify(this.fields) === JSON.stringify(fields);
    if (same) return;
    this.fields = fields;
    this.scalars = fields.filter(isScalar);
    this.ring = this.scalars.length ? new Ring(this.scalars.length, SCALAR_POINTS) : null;
    this.waves.clear();
    const waiting = this.waiting.length ? this.waiting : this.recent.slice();
    this.waiting = [];
    for (const element of waiting) this.plot(element);
  }

  /** Takes elements of before, as the API lists them, if nothing later was drawn yet. */
  backfill(elements) {
    const first = this.recent[0];
    const older = elements.filter(
      (one) => !first || one.epoch !== first.epoch || one.number < first.number,
    );
    const later = this.recent;
    this.recent = [];
    this.newest = null;
    this.ring?.clear();
    this.waves.clear();
    for (const one of [...older, ...later]) this.take(one, false);
  }

  /**
   * Takes an element of the live stream; one that was there already (after a resume) is not
   * doubled.
   */
  take(element, live = true) {
    const last = this.newest;
    if (last && element.epoch === last.epoch && element.number <= last.number) return false;
    this.newest = element;
    this.recent.push(element);
    if (this.recent.length > RECENT) this.recent.shift();
    if (live) {
      this.seen += 1;
      this.heardAt = Date.now();
    }
    if (this.fields) this.plot(element);
    else if (this.waiting.push(element) > WAITING) this.waiting.shift();
    return true;
  }

  /** Discards received elements, because the node has rolled back past them. */
  rollback() {
    this.newest = null;
    this.recent = [];
    this.waiting = [];
    this.ring?.clear();
    this.waves.clear();
  }

  plot(element) {
    const time = Date.parse(element.source_time ?? element.receive_time) / 1000;
    if (this.ring)
      this.ring.push(
        time,
        this.scalars.map((f) => plotted(element.values[f.name])),
      );
    for (const field of this.fields) {
      if (field.type !== 'samples') continue;
      const stretch = element.values[field.name];
      if (stretch && Array.isArray(stretch.values) && stretch.period_s > 0) {
        this.plotWave(field.name, stretch);
      }
    }
  }

  plotWave(name, stretch) {
    let wave = this.waves.get(name);
    if (!wave || wave.period !== stretch.period_s) {
      const wanted = Math.ceil(WAVE_SECONDS / stretch.period_s);
      const capacity = Math.min(WAVE_POINTS_MOST, Math.max(WAVE_POINTS_LEAST, wanted));
      wave = { period: stretch.period_s, ring: new Ring(1, capacity) };
      this.waves.set(name, wave);
    }
    const start = Date.parse(stretch.start) / 1000;
    const one = [0];
    // A gap of more than two periods is drawn as a gap.
    if (wave.ring.length && start - wave.ring.newest > 2 * stretch.period_s) {
      one[0] = NaN;
      wave.ring.push(wave.ring.newest + stretch.period_s, one);
    }
    // Times of stretches are rounded; a start within one period before the last point still follows
    // it.
    const late = wave.ring.newest - start;
    const shift = late >= 0 && late < 2 * stretch.period_s ? late + stretch.period_s / 2 : 0;
    for (let index = 0; index < stretch.values.length; index += 1) {
      one[0] = stretch.values[index] ?? NaN;
      wave.ring.push(start + shift + index * stretch.period_s, one);
    }
  }
}
