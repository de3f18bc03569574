// The picture of an entity among its neighbours. Its links are those of the list below it, so the picture
// is hidden from screen readers and from the keyboard.

import { h, replace, setAttribute, svg } from './dom.js';
import { layout } from './entity-words.js';

/** Neighbours that are drawn; the list has all. */
export const DRAWN_MOST = 16;

function cut(text, width) {
  const most = Math.max(6, Math.floor((width - 20) / 7.2));
  return text.length > most ? `${text.slice(0, most - 1)}…` : text;
}

function station(place, name, kind, className) {
  return svg(
    'g',
    { class: className, transform: `translate(${place.x} ${place.y})` },
    svg('rect', { width: place.width, height: place.height, rx: 3 }),
    svg('text', { class: 'name', x: 10, y: 17 }, cut(name, place.width)),
    svg('text', { class: 'more', x: 10, y: 32 }, kind),
  );
}

function line(points, isIncoming) {
  const path = points.map((one, index) => `${index ? 'L' : 'M'}${one.x} ${one.y}`).join('');
  return svg('path', { class: isIncoming ? 'wire incoming' : 'wire', d: path });
}

/** The picture; `show(entity, neighbours, href)` draws it. */
export function picture() {
  const drawing = svg('svg', { class: 'entity-picture', 'aria-hidden': 'true' });
  const node = h('div', { class: 'picture', hidden: true }, drawing);
  let shown = null;

  function draw() {
    if (!shown) return;
    const { entity, neighbours, href } = shown;
    const width = Math.max(260, node.clientWidth || 260);
    const drawn = neighbours.slice(0, DRAWN_MOST);
    const at = layout(width, drawn);
    setAttribute(drawing, 'viewBox', `0 0 ${width} ${at.height}`);
    setAttribute(drawing, 'height', at.height);
    replace(
      drawing,
      drawn.map((one) => line(at.places.get(one.key).line, one.named_by.length === 0)),
      station(at.self, entity.name || entity.key, entity.kind, 'station self'),
      drawn.map((one) =>
        svg(
          'a',
          { href: href(one.key), tabindex: -1 },
          station(at.places.get(one.key), one.name || one.key, one.kind, 'station'),
        ),
      ),
    );
  }

  const sizes = new ResizeObserver(draw);
  sizes.observe(node);
  return {
    node,
    show(entity, neighbours, href) {
      shown = neighbours.length ? { entity, neighbours, href } : null;
      node.hidden = !shown;
      draw();
    },
    end: () => sizes.disconnect(),
  };
}
