// Server-sent events over fetch, because the browser's own reader cannot send a token, and resumes
// from hours ago as readily as from a second ago. Source: HTML Living Standard, 9.2. Fields `retry`
// and comments are passed over; how soon to try again is the caller's business.

const SILENCE_MS = 60_000;
const EVENT_MOST = 16 * 1024 * 1024;

/** Splits a text that arrives in pieces into events. */
export class EventParser {
  constructor(take) {
    this.take = take;
    this.rest = '';
    this.event = { type: 'message', id: null, data: [] };
  }

  /** Takes a piece of the text. */
  push(piece) {
    this.rest += piece;
    if (this.rest.length > EVENT_MOST) throw new Error('an event is too large');
    // A carriage return at the end may be half of a line's end.
    const whole = this.rest.endsWith('\r') ? this.rest.slice(0, -1) : this.rest;
    const lines = whole.split(/\r\n|\n|\r/);
    const open = lines.pop();
    this.rest = open + this.rest.slice(whole.length);
    for (const line of lines) this.line(line);
  }

  line(line) {
    if (line === '') {
      const { type, id, data } = this.event;
      this.event = { type: 'message', id: null, data: [] };
      if (data.length) this.take({ type, id, data: data.join('\n') });
      return;
    }
    const colon = line.indexOf(':');
    if (colon === 0) return;
    const name = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? '' : line.slice(colon + 1).replace(/^ /, '');
    if (name === 'event') this.event.type = value;
    else if (name === 'id') this.event.id = value;
    else if (name === 'data') this.event.data.push(value);
  }
}

/**
 * Reads events until the stream ends, breaks, or is silent for a minute (the node sends a comment
 * more often). Calls `opened()`, `event({ type, id, data })` and at last `ended(status)`, where the
 * status is that of a refusal, or null.
 */
export function readEvents(url, headers, { opened, event, ended }) {
  const abort = new AbortController();
  let timer = null;
  let isClosed = false;
  const heard = () => {
    clearTimeout(timer);
    timer = setTimeout(() => abort.abort(), SILENCE_MS);
  };
  const run = async () => {
    heard();
    const answer = await fetch(url, { headers, signal: abort.signal, cache: 'no-store' });
    if (!answer.ok) return answer.status;
    if (isClosed) return null;
    opened();
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    const parser = new EventParser((one) => isClosed || event(one));
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return null;
      heard();
      parser.push(value);
    }
  };
  run()
    .catch(() => null)
    .then((status) => {
      clearTimeout(timer);
      abort.abort();
      if (!isClosed) ended(status);
    });
  return {
    close() {
      isClosed = true;
      abort.abort();
    },
  };
}
