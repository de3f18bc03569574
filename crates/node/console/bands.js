// Bands under a chart: when elements were lost or refused, and when the source was away.

import * as api from './api.js';
import { bandsOf, words } from './band-words.js';
import { h, setText } from './dom.js';
import { colour } from './frames.js';

const EVERY_MS = 15_000;
const HEIGHT = 6;
const LEAST_WIDTH = 3;

/** Draws the bands of `control` at the lower edge of a plot. */
export function drawBands(plot, control) {
  const { left, top, width, height } = plot.bbox;
  const ratio = globalThis.devicePixelRatio || 1;
  for (const { kind, from, to } of control.bands ?? []) {
    const at = (time) => {
      const place = plot.valToPos(time, 'x', true);
      return Math.max(left, Math.min(left + width, Number.isNaN(place) ? left : place));
    };
    const begin = at(Math.max(from, plot.scales.x.min));
    const end = at(Math.min(to, plot.scales.x.max));
    if (to < plot.scales.x.min || from > plot.scales.x.max) continue;
    plot.ctx.fillStyle = colour(kind === 'away' ? 'muted' : 'bad');
    plot.ctx.fillRect(
      begin,
      top + height - HEIGHT * ratio,
      Math.max(end - begin, LEAST_WIDTH * ratio),
      HEIGHT * ratio,
    );
  }
}

/** Keeps `control.bands` up to date for the time that is shown. */
export class Bands {
  constructor(name, control) {
    this.name = name;
    this.control = control;
    this.node = h('p', { class: 'foot', role: 'status' });
    this.timer = setInterval(() => this.read(), EVERY_MS);
    this.read();
  }

  async read() {
    const from = new Date(Date.now() - this.control.seconds * 1000).toISOString();
    try {
      const path = api.path('streams', this.name, 'completeness');
      const answer = await api.read(api.query(path, { from }));
      this.control.bands = bandsOf(answer);
      setText(this.node, words(answer));
    } catch {
      // The page itself shows that the node does not answer.
      this.control.bands = [];
    }
  }

  end() {
    clearInterval(this.timer);
  }
}
