// A small line without axes: the last stretch of a stream, drawn on a canvas. The value itself
// stands beside it as text.

import { h } from './dom.js';
import { animate, colour, onScheme, series } from './frames.js';

const POINTS = 60;
const WAVE_SECONDS = 6;
const EVERY_MS = 120;
const EVERY_WAVE_MS = 66;

/** A canvas that follows a stream. Returns { node, end }. */
export function spark(buffer, label = '') {
  const node = h('canvas', { class: 'spark', 'aria-hidden': 'true', title: label });
  let drawn = null;
  let edge = 0;
  let inks = null;
  const size = { width: 0, height: 0 };
  const observer = new ResizeObserver(([entry]) => {
    size.width = entry.contentRect.width;
    size.height = entry.contentRect.height;
    drawn = null;
  });
  observer.observe(node);
  const wave = () => buffer.waves.values().next().value ?? null;
  const endScheme = onScheme(() => {
    inks = null;
    drawn = null;
  });
  const end = animate(wave() ? EVERY_WAVE_MS : EVERY_MS, (passed) => {
    if (size.width === 0) return;
    inks ??= [series(0), series(1), series(2), colour('line')];
    const curve = wave();
    if (!curve && drawn === buffer.newest) return;
    drawn = buffer.newest;
    let views;
    let range;
    if (curve) {
      edge = follow(edge, passed, curve.ring.newest);
      range = [edge - WAVE_SECONDS, edge];
      views = curve.ring.view(...range);
    } else if (buffer.ring) {
      views = lines(buffer, buffer.ring.tail(POINTS));
      const [times] = views;
      range = [times[0], times[times.length - 1]];
    }
    paint(node, size, views, range, inks);
  });
  return {
    node,
    end() {
      end();
      endScheme();
      observer.disconnect();
    },
  };
}

/**
 * Moves the right edge of a chart with the clock and keeps it a little behind the newest point, so
 * that stretches which arrive four times a second are drawn as one smooth movement.
 */
export function follow(edge, passed, newest, behind = 0.35) {
  if (!Number.isFinite(newest)) return edge;
  const target = newest - behind;
  const moved = edge + passed;
  const error = target - moved;
  if (Math.abs(error) > 1.5) return target;
  return moved + error * Math.min(1, passed * 0.8);
}

/** The columns to draw: those of the first unit; Booleans are shown as text. */
function lines(buffer, [times, ...columns]) {
  const drawn = buffer.scalars.filter((field) => field.type !== 'boolean');
  const kept = columns.filter(
    (_, index) =>
      drawn.includes(buffer.scalars[index]) && buffer.scalars[index].unit === drawn[0].unit,
  );
  return [times, ...(kept.length ? kept : columns)];
}

function paint(canvas, size, views, range, inks) {
  const scale = window.devicePixelRatio || 1;
  const width = Math.round(size.width * scale);
  const height = Math.round(size.height * scale);
  if (canvas.width !== width || canvas.height !== height) {
    canvas.width = width;
    canvas.height = height;
  }
  const pen = canvas.getContext('2d');
  pen.clearRect(0, 0, width, height);
  if (!views || views[0].length < 2) return;
  const [times, ...columns] = views;
  let low = Infinity;
  let high = -Infinity;
  for (const column of columns) {
    for (let index = 0; index < column.length; index += 1) {
      if (column[index] < low) low = column[index];
      if (column[index] > high) high = column[index];
    }
  }
  if (low > high) return;
  if (low === high) {
    low -= 1;
    high += 1;
  }
  const span = range[1] - range[0] || 1;
  const room = 2 * scale;
  pen.lineWidth = 1.25 * scale;
  pen.lineJoin = 'round';
  columns.slice(0, 3).forEach((column, index) => {
    pen.strokeStyle = inks[index];
    pen.beginPath();
    let gap = true;
    for (let point = 0; point < column.length; point += 1) {
      const value = column[point];
      if (Number.isNaN(value)) {
        gap = true;
        continue;
      }
      const x = ((times[point] - range[0]) / span) * width;
      const y = height - room - ((value - low) / (high - low)) * (height - 2 * room);
      if (gap) pen.moveTo(x, y);
      else pen.lineTo(x, y);
      gap = false;
    }
    pen.stroke();
  });
}
