// Where the stations and lines of the picture of links lie, and what they say: numbers and texts
// only.

import { age, count, rate } from './format.js';

const NARROW = 620;
export const STATION = { width: 168, height: 46, gap: 20 };
const MARK_SPEED_MOST = 90;

/** How many pixels a second the marks of a line run: by the logarithm of the rate. */
export function speed(perSecond) {
  if (!(perSecond > 0)) return 0;
  return Math.min(MARK_SPEED_MOST, 12 + 18 * Math.log10(1 + perSecond));
}

/** How thick the line of a rate is in pixels. */
export function thickness(perSecond) {
  return 1.5 + Math.min(4.5, Math.log10(1 + Math.max(0, perSecond ?? 0)) * 1.2);
}

/** Where stations and lines lie in a picture of this width. */
export function layout(width, origins, readers) {
  const isNarrow = width < NARROW;
  const rows = Math.max(origins, readers, 1);
  const pitch = STATION.height + STATION.gap;
  const places = { origins: [], readers: [], isNarrow };
  if (isNarrow) {
    const stationWidth = Math.min(STATION.width, (width - 16) * 0.62);
    const all = origins + 1 + readers;
    const at = (index) => ({
      x: index < origins ? 0 : index === origins ? (width - stationWidth) / 2 : width - stationWidth,
      y: index * (pitch + 22) + 4,
      width: stationWidth,
      height: STATION.height,
    });
    for (let index = 0; index < origins; index += 1) places.origins.push(at(index));
    places.self = at(origins);
    for (let index = 0; index < readers; index += 1) places.readers.push(at(origins + 1 + index));
    places.height = all * (pitch + 22) - 10;
    return places;
  }
  places.height = rows * pitch + 8;
  const column = (x, number) =>
    Array.from({ length: number }, (_, index) => ({
      x,
      y: places.height / 2 + (index - (number - 1) / 2) * pitch - STATION.height / 2,
      width: STATION.width,
      height: STATION.height,
    }));
  places.origins = column(1, origins);
  places.readers = column(width - STATION.width - 1, readers);
  [places.self] = column((width - STATION.width) / 2, 1);
  return places;
}

/** The path of a line between two stations. */
export function way(from, to, isNarrow) {
  if (isNarrow) {
    const [x1, y1] = [from.x + from.width / 2, from.y + from.height];
    const [x2, y2] = [to.x + to.width / 2, to.y];
    const half = (y1 + y2) / 2;
    return `M${x1} ${y1}C${x1} ${half} ${x2} ${half} ${x2} ${y2}`;
  }
  const [x1, y1] = [from.x + from.width, from.y + from.height / 2];
  const [x2, y2] = [to.x, to.y + to.height / 2];
  const half = (x1 + x2) / 2;
  return `M${x1} ${y1}C${half} ${y1} ${half} ${y2} ${x2} ${y2}`;
}

/** The caption of a line: its rate and its lag. */
export function caption({ state, perSecond, lag, lagSeconds }) {
  if (state !== 'connected') return state;
  const parts = [];
  if (perSecond !== null) parts.push(rate(perSecond));
  const late = lagSeconds >= 1 ? age(lagSeconds * 1000) : null;
  if (lag > 0) parts.push(`lag ${count(lag)}${late ? `, ${late}` : ''}`);
  else if (late) parts.push(`${late} late`);
  return parts.join(' · ') || 'connected';
}
