// A bounded buffer of points in time order. Every value is stored twice, one capacity apart, so
// that any stretch of it is one contiguous view and drawing copies nothing.

const FIRST_CAPACITY = 256;

export class Ring {
  /**
   * `columns` series share one time axis. It grows up to `most` points; then the oldest point gives
   * way to the newest.
   */
  constructor(columns, most) {
    this.most = most;
    this.capacity = Math.min(FIRST_CAPACITY, most);
    this.times = new Float64Array(this.capacity * 2);
    this.columns = Array.from({ length: columns }, () => new Float64Array(this.capacity * 2));
    this.next = 0;
    this.length = 0;
    this.late = 0;
  }

  /** The time of the newest point in seconds, or -Infinity. */
  get newest() {
    return this.length ? this.times[(this.next + this.capacity - 1) % this.capacity] : -Infinity;
  }

  /** Adds a point. One older than the newest cannot be drawn as a line and is counted as late. */
  push(time, values) {
    if (!(time >= this.newest)) {
      this.late += 1;
      return false;
    }
    if (this.length === this.capacity && this.capacity < this.most) this.grow();
    const { next, capacity } = this;
    this.times[next] = time;
    this.times[next + capacity] = time;
    for (let column = 0; column < this.columns.length; column += 1) {
      this.columns[column][next] = values[column];
      this.columns[column][next + capacity] = values[column];
    }
    this.next = (next + 1) % capacity;
    if (this.length < capacity) this.length += 1;
    return true;
  }

  grow() {
    const [start, end] = this.bounds();
    const capacity = Math.min(this.most, this.capacity * 2);
    const copy = (old) => {
      const array = new Float64Array(capacity * 2);
      array.set(old.subarray(start, end), 0);
      array.set(old.subarray(start, end), capacity);
      return array;
    };
    this.times = copy(this.times);
    this.columns = this.columns.map(copy);
    this.next = this.length;
    this.capacity = capacity;
  }

  /** Forgets all points. */
  clear() {
    this.next = 0;
    this.length = 0;
  }

  /** Where the points lie in the doubled arrays: [start, end). */
  bounds() {
    if (this.length < this.capacity) return [0, this.length];
    return [this.next, this.next + this.capacity];
  }

  /**
   * Views [times, ...columns] of the points from `from` to `to` seconds, with one point more on
   * each side so that the line reaches the edges.
   */
  view(from, to) {
    const [start, end] = this.bounds();
    const first = Math.max(start, this.search(from, start, end) - 1);
    const last = Math.min(end, this.search(to, first, end) + 1);
    return [this.times, ...this.columns].map((array) => array.subarray(first, last));
  }

  /** Views of the newest `points`. */
  tail(points) {
    const [start, end] = this.bounds();
    const first = Math.max(start, end - points);
    return [this.times, ...this.columns].map((array) => array.subarray(first, end));
  }

  search(time, start, end) {
    let low = start;
    let high = end;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.times[middle] < time) low = middle + 1;
      else high = middle;
    }
    return low;
  }
}
