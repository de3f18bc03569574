// The node's state, kept fresh: read when a page opens, when a notice reports a change, and slowly
// repeated while the page is visible.

import { path, read, readList } from './api.js';
import * as live from './live.js';

const SOURCES = {
  node: { url: path('node'), everyMs: 10_000, pick: (body) => body },
  devices: { url: path('devices'), everyMs: 4_000, pick: (body) => body.devices ?? [] },
  streams: {
    url: path('streams'),
    read: (url) => readList(url, 'streams'),
    everyMs: 4_000,
    pick: (body) => body.streams,
  },
  sensors: {
    url: path('virtual-sensors'),
    everyMs: 5_000,
    pick: (body) => body.virtual_sensors ?? [],
  },
  links: { url: path('links'), everyMs: 5_000, pick: (body) => body },
  topics: { url: path('dds'), everyMs: 5_000, pick: (body) => body },
  wrappers: {
    url: [path('wrappers'), path('exporters')],
    everyMs: 5_000,
    pick: ([wrappers, exporters]) => ({
      wrappers: wrappers.wrappers ?? [],
      exporters: exporters.exporters ?? [],
    }),
  },
  drops: { url: path('drops'), everyMs: 5_000, pick: (body) => body.drops ?? [] },
};
const NOTICE_DELAY_MS = 150;

/**
 * The newest answer of each kind (null until the first) and its error, if the last reading failed.
 */
export const model = {
  node: null,
  devices: null,
  streams: null,
  sensors: null,
  links: null,
  topics: null,
  wrappers: null,
  drops: null,
};
export const errors = {};

const watchers = new Set();
const reading = {};
let noticeTimer = null;

/** Calls `changed(kind)` after each reading. Returns how to end it. */
export function watch(changed) {
  watchers.add(changed);
  return () => watchers.delete(changed);
}

/** Reads one kind now, unless that is under way. */
export async function refresh(kind) {
  if (reading[kind]) return;
  reading[kind] = true;
  const { url, pick, read: readOne = read } = SOURCES[kind];
  try {
    const answer = Array.isArray(url) ? Promise.all(url.map((one) => read(one))) : readOne(url);
    model[kind] = pick(await answer);
    errors[kind] = null;
  } catch (error) {
    errors[kind] = error;
  } finally {
    reading[kind] = false;
  }
  if (kind === 'streams' && model.streams) {
    for (const stream of model.streams) live.buffer(stream.name).describe(stream.fields ?? []);
  }
  for (const changed of watchers) changed(kind);
}

/** Reads everything now. */
export function refreshAll() {
  return Promise.all(Object.keys(SOURCES).map(refresh));
}

async function readNotices() {
  try {
    live.remember((await read(path('notices'))).notices ?? []);
  } catch {
    // What comes live is still shown.
  }
}

/** Starts keeping fresh. */
export function start() {
  for (const [kind, { everyMs }] of Object.entries(SOURCES)) {
    setInterval(() => {
      if (!document.hidden) refresh(kind);
    }, everyMs);
  }
  document.addEventListener('visibilitychange', () => {
    if (!document.hidden) refreshAll();
  });
  live.listen((kind, subject) => {
    if (kind === 'link' && subject === 'live') {
      refreshAll();
      readNotices();
    }
    if (kind !== 'notice' || !subject) return;
    clearTimeout(noticeTimer);
    noticeTimer = setTimeout(refreshAll, NOTICE_DELAY_MS);
  });
  return refreshAll();
}

/** The stream of that name, as last read. */
export function stream(name) {
  const all = model.streams ?? [];
  const former = (one) => (one.former_names ?? []).includes(name);
  return all.find((one) => one.name === name) ?? all.find(former) ?? null;
}

/** The device of that key, as last read. */
export function device(key) {
  return model.devices?.find((one) => one.key === key) ?? null;
}

/** The virtual sensor of that name, as last read. */
export function sensor(name) {
  return model.sensors?.find((one) => one.name === name) ?? null;
}

/** The link of that name, as last read. */
export function link(name) {
  return model.links?.links?.find((one) => one.name === name) ?? null;
}

/** What produces a stream: a device, a virtual sensor, a link, or only its name. */
export function producer(one) {
  const found = device(one.source);
  if (found)
    return { kind: 'device', name: found.name, href: `#/devices/${encodeURIComponent(found.key)}` };
  const virtual = sensor(one.source);
  if (virtual) {
    return {
      kind: 'virtual sensor',
      name: virtual.name,
      href: `#/sensors/${encodeURIComponent(virtual.name)}`,
    };
  }
  const from = /^urn:chappe:link:(.+)$/.exec(one.source)?.[1];
  if (from) return { kind: 'link', name: from, href: `#/links/${encodeURIComponent(from)}` };
  return { kind: 'source', name: one.source, href: null };
}
