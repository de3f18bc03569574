// The page's only live event stream, the source of everything that moves. After a short break it
// resumes after the last event's id; after a longer one it starts with new events.

import { credentials, liveAddress, refused } from './api.js';
import { StreamBuffer } from './buffer.js';
import { readEvents } from './events.js';

const NOTICES = 200;
const ALL_STREAMS_MOST = 64;
const RESUME_WITHIN_MS = 30_000;
const RETRY_FIRST_MS = 500;
const RETRY_MOST_MS = 8_000;
const RATE_OVER_S = 5;

const buffers = new Map();
const listeners = new Set();
const slots = new Array(RATE_OVER_S + 1).fill(0);

/** The state of the connection: opening, live or broken, and since when. */
export const link = { state: 'opening', since: Date.now(), attempt: 0, elements: 0, retryAt: null };

/** The newest notices, newest first. */
export const notices = [];

let source = null;
let timer = null;
let wanted = '*';
let lastId = null;

/** The buffer of a stream; it is made when it is asked for first. */
export function buffer(name) {
  let known = buffers.get(name);
  if (!known) {
    known = new StreamBuffer(name);
    buffers.set(name, known);
  }
  return known;
}

/** Takes the notices of before this page was opened, oldest first as the node lists them. */
export function remember(history) {
  const key = (one) => `${one.at} ${one.subject} ${one.text}`;
  const known = new Set(notices.map(key));
  const before = history.filter((one) => !known.has(key(one))).reverse();
  notices.push(...before);
  notices.sort((a, b) => (a.at < b.at ? 1 : a.at > b.at ? -1 : 0));
  notices.length = Math.min(notices.length, NOTICES);
  tell('notice', null);
}

/** Calls `listener(kind, subject)` for "link", "notice" and "elements". Returns how to end it. */
export function listen(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

/** Elements a second that arrived over the last seconds. */
export function arrivals() {
  turnSlots();
  let sum = 0;
  for (let index = 1; index < slots.length; index += 1) sum += slots[index];
  const connected = link.state === 'live' ? (Date.now() - link.since) / 1000 : RATE_OVER_S;
  return sum / Math.max(1, Math.min(RATE_OVER_S, connected));
}

let slotSecond = Math.floor(Date.now() / 1000);

function turnSlots() {
  const second = Math.floor(Date.now() / 1000);
  for (let turn = Math.min(slots.length, second - slotSecond); turn > 0; turn -= 1) {
    slots.pop();
    slots.unshift(0);
  }
  slotSecond = second;
}

function tell(kind, subject) {
  for (const listener of listeners) listener(kind, subject);
}

function become(state) {
  if (link.state === state) return;
  link.state = state;
  link.since = Date.now();
  tell('link', state);
}

/**
 * Says which streams there are and which of them are on the page. Few streams are all followed, so
 * that every page has its history at once; of many, only those that can be seen.
 */
export function follow(all, visible) {
  const names = all.length <= ALL_STREAMS_MOST ? '*' : visible.slice(0, ALL_STREAMS_MOST).join(',');
  if (names === wanted || names === '') return;
  wanted = names;
  if (source) open();
}

function parse(data) {
  try {
    return JSON.parse(data);
  } catch {
    return null;
  }
}

const TAKE = { elements: takeElements, notice: takeNotice, rollback: takeRollback };

/** Opens or reopens the event stream. */
export function open() {
  source?.close();
  clearTimeout(timer);
  const isShort = link.state === 'broken' && Date.now() - link.since < RESUME_WITHIN_MS;
  const headers = credentials({ accept: 'text/event-stream' });
  if (isShort && lastId) headers['last-event-id'] = lastId;
  lastId = null;
  source = readEvents(liveAddress(wanted), headers, {
    opened() {
      link.attempt = 0;
      link.retryAt = null;
      become('live');
    },
    event({ type, id, data }) {
      if (id) lastId = id;
      TAKE[type]?.(parse(data));
    },
    ended(status) {
      if (status === 401) refused();
      become('broken');
      retry();
    },
  });
}

function retry() {
  const wait = Math.min(RETRY_MOST_MS, RETRY_FIRST_MS * 2 ** link.attempt);
  link.attempt += 1;
  link.retryAt = Date.now() + wait;
  timer = setTimeout(open, wait);
  tell('link', 'broken');
}

function takeElements(message) {
  if (!message || !Array.isArray(message.elements)) return;
  turnSlots();
  for (const element of message.elements) {
    if (!buffer(element.stream).take(element)) continue;
    slots[0] += 1;
    link.elements += 1;
  }
  tell('elements', null);
}

function takeNotice(notice) {
  if (!notice) return;
  notices.unshift(notice);
  if (notices.length > NOTICES) notices.pop();
  tell('notice', notice);
}

function takeRollback(message) {
  if (!message) return;
  buffer(message.stream).rollback();
  takeNotice({
    at: new Date().toISOString(),
    kind: 'health',
    subject: message.stream,
    text: `the node remembers less than this page: we had ${message.have}, it has ${message.want}`,
  });
}
