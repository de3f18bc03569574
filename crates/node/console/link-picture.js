// The picture of nodes and links: origins on the left, this node in the middle, readers on the right;
// on a narrow screen from top to bottom. The thickness of a line shows its rate, marks run along it as
// elements flow, and a broken line is dashed.

import { h, replace, setAttribute, setText, svg } from './dom.js';
import { count, rate } from './format.js';
import { animate } from './frames.js';
import { STATION, caption, layout, speed, thickness, way } from './link-layout.js';

const NODES_MOST = 12;
const MARK_SPACING = 46;

function station() {
  const parts = {
    box: svg('rect', { rx: 3 }),
    name: svg('text', { class: 'name' }),
    more: svg('text', { class: 'more' }),
  };
  parts.node = svg('g', { class: 'station' }, parts.box, parts.name, parts.more);
  return parts;
}

function place(parts, at, name, more) {
  setAttribute(parts.node, 'transform', `translate(${at.x} ${at.y})`);
  setAttribute(parts.box, 'width', at.width);
  setAttribute(parts.box, 'height', at.height);
  const fit = (text, size) => {
    const most = Math.floor((at.width - 18) / size);
    return text.length > most ? `${text.slice(0, most - 1)}…` : text;
  };
  for (const [node, y, text, size] of [
    [parts.name, 19, name, 7.4],
    [parts.more, 36, more, 6.3],
  ]) {
    setAttribute(node, 'x', 10);
    setAttribute(node, 'y', y);
    setText(node, fit(text ?? '', size));
  }
}

/**
 * The picture. `show({ self, origins, readers })` draws it: each of the latter is
 * { key, name, more, state, perSecond, lag, lagSeconds, href }.
 */
export function picture() {
  const lines = svg('g');
  const stations = svg('g');
  const drawing = svg('svg', { class: 'links-picture', role: 'img' }, lines, stations);
  const hidden = h('p', { class: 'quiet' });
  const node = h('div', { class: 'picture' }, drawing, hidden);
  const known = new Map();
  let shown = null;
  let width = 0;

  function entry(key) {
    let found = known.get(key);
    if (!found) {
      found = {
        line: svg('path', { class: 'wire' }),
        marks: svg('path', { class: 'marks' }),
        words: svg('text', { class: 'caption' }),
        station: station(),
        offset: 0,
      };
      known.set(key, found);
      if (key !== 'self') lines.append(found.line, found.marks, found.words);
      stations.append(found.station.node);
    }
    return found;
  }

  function forget(kept) {
    for (const [key, found] of known) {
      if (kept.has(key)) continue;
      for (const part of [found.line, found.marks, found.words, found.station.node]) part.remove();
      known.delete(key);
    }
  }

  function draw() {
    if (!shown || width < 1) return;
    const origins = shown.origins.slice(0, NODES_MOST);
    const readers = shown.readers.slice(0, NODES_MOST);
    const places = layout(width, origins.length, readers.length);
    setAttribute(drawing, 'viewBox', `0 0 ${width} ${places.height}`);
    setAttribute(drawing, 'height', places.height);
    const self = entry('self');
    self.station.node.classList.add('self');
    place(self.station, places.self, shown.self.name, shown.self.more);
    const kept = new Set(['self']);
    const one = (side, item, at, from, to) => {
      const key = `${side} ${item.key}`;
      kept.add(key);
      const parts = entry(key);
      parts.item = item;
      const d = way(from, to, places.isNarrow);
      for (const path of [parts.line, parts.marks]) {
        setAttribute(path, 'd', d);
        setAttribute(path, 'data-state', item.state);
      }
      setAttribute(parts.line, 'stroke-width', thickness(item.perSecond).toFixed(1));
      setAttribute(parts.station.node, 'data-state', item.state);
      place(parts.station, at, item.name, item.more);
      const words = caption(item);
      setText(parts.words, words);
      setAttribute(parts.words, 'data-state', item.state);
      const x = (from.x + from.width / 2 + to.x + to.width / 2) / 2;
      const y = (from.y + to.y + from.height) / 2;
      setAttribute(parts.words, 'x', places.isNarrow ? Math.min(Math.max(x, 70), width - 70) : x);
      setAttribute(parts.words, 'y', places.isNarrow ? y + 4 : (from.y + to.y) / 2 + STATION.height / 2 - 8);
    };
    origins.forEach((item, index) =>
      one('origin', item, places.origins[index], places.origins[index], places.self),
    );
    readers.forEach((item, index) =>
      one('reader', item, places.readers[index], places.self, places.readers[index]),
    );
    forget(kept);
    const more = shown.origins.length + shown.readers.length - origins.length - readers.length;
    setText(hidden, more > 0 ? `and ${count(more)} more in the tables below` : '');
    hidden.hidden = more <= 0;
    const total = (items) => items.reduce((sum, item) => sum + (item.perSecond ?? 0), 0);
    setAttribute(
      drawing,
      'aria-label',
      `${shown.self.name} reads from ${count(shown.origins.length)} with ` +
        `${rate(total(shown.origins))} and is read by ${count(shown.readers.length)}`,
    );
  }

  const observer = new ResizeObserver(() => {
    width = Math.floor(node.clientWidth);
    draw();
  });
  observer.observe(node);
  const endMarks = animate(50, (seconds) => {
    for (const parts of known.values()) {
      const running = parts.item?.state === 'connected' ? speed(parts.item.perSecond) : 0;
      setAttribute(parts.marks, 'visibility', running > 0 ? null : 'hidden');
      if (running === 0) continue;
      parts.offset = (parts.offset + running * seconds) % MARK_SPACING;
      setAttribute(parts.marks, 'stroke-dashoffset', (-parts.offset).toFixed(1));
    }
  });
  replace(node, drawing, hidden);
  return {
    node,
    show(next) {
      shown = next;
      draw();
    },
    end() {
      endMarks();
      observer.disconnect();
    },
  };
}
