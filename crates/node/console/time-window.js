// A window of time that is zoomed and moved within the times that a stream keeps.

const LEAST_S = 0.001;

/** The window [from, to] in seconds, within [first, last] and at least a millisecond wide. */
export function within([from, to], [first, last]) {
  const whole = Math.max(last - first, LEAST_S);
  const width = Math.min(Math.max(to - from, LEAST_S), whole);
  const start = Math.min(Math.max(from, first), first + whole - width);
  return [start, start + width];
}

/** The window `factor` as wide; the time `at` stays where it is. */
export function zoom([from, to], factor, at, bounds) {
  return within([at - (at - from) * factor, at + (to - at) * factor], bounds);
}

/** The window moved by a part of its width. */
export function pan([from, to], part, bounds) {
  const distance = (to - from) * part;
  return within([from + distance, to + distance], bounds);
}

/** Columns for a chart of one field: times of the middles of buckets, means, least, greatest. */
export function columns(range, name) {
  const field = range.fields.find((one) => one.name === name);
  const first = Date.parse(range.from) / 1000;
  const middle = (_, index) => first + (index + 0.5) * range.width_s;
  return [range.count.map(middle), field.mean, field.min, field.max];
}
