// One animation loop for everything that moves. Each drawing sets its own rate; nothing is drawn while
// the page is hidden, and little for readers who prefer reduced motion.

const drawings = new Set();
const calm = window.matchMedia('(prefers-reduced-motion: reduce)');
let running = false;

function step(now) {
  if (drawings.size === 0) {
    running = false;
    return;
  }
  for (const drawing of drawings) {
    const wait = calm.matches ? Math.max(1000, drawing.everyMs) : drawing.everyMs;
    if (now - drawing.last < wait) continue;
    const passed = drawing.last ? now - drawing.last : 0;
    drawing.last = now;
    drawing.draw(passed / 1000);
  }
  requestAnimationFrame(step);
}

/** Calls `draw(seconds since the last time)` at most every `everyMs`. Returns how to end it. */
export function animate(everyMs, draw) {
  const drawing = { everyMs, draw, last: 0 };
  drawings.add(drawing);
  if (!running) {
    running = true;
    requestAnimationFrame(step);
  }
  return () => drawings.delete(drawing);
}

const dark = window.matchMedia('(prefers-color-scheme: dark)');

/** Calls `change` when the reader's colour scheme changes. Returns how to end it. */
export function onScheme(change) {
  dark.addEventListener('change', change);
  return () => dark.removeEventListener('change', change);
}

/** A colour of the style sheet, for canvases. */
export function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

/** The colours of series, in order. */
export function series(index) {
  return colour(`series-${(index % 6) + 1}`);
}
