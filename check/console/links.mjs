// A second node that reads the demonstration's streams through a relay, which can be cut and slowed:
// what its page of links has to show.

import { spawn } from 'node:child_process';
import { mkdirSync, writeFileSync } from 'node:fs';
import { createConnection, createServer } from 'node:net';
import { join } from 'node:path';
import { createInterface } from 'node:readline';

import { until } from './demo.mjs';

const SLOW_BYTES = 48;
const SLOW_EVERY_MS = 50;

/** A relay to a port of this machine. `mode` is open, slow or cut. */
export async function startRelay(port) {
  const sockets = new Set();
  const relay = { mode: 'open', port: null, taken: 0 };
  const server = createServer((near) => {
    if (relay.mode === 'cut') {
      near.destroy();
      return;
    }
    relay.taken += 1;
    const far = createConnection({ port, host: '127.0.0.1' });
    for (const [one, other] of [
      [near, far],
      [far, near],
    ]) {
      sockets.add(one);
      one.on('error', () => {});
      one.on('close', () => {
        sockets.delete(one);
        other.destroy();
      });
    }
    near.pipe(far);
    far.on('data', (data) => slowly(far, near, data));
  });
  async function slowly(from, to, data) {
    if (relay.mode !== 'slow') {
      if (!to.write(data)) {
        from.pause();
        to.once('drain', () => from.resume());
      }
      return;
    }
    from.pause();
    for (let at = 0; at < data.length && !to.destroyed; at += SLOW_BYTES) {
      to.write(data.subarray(at, relay.mode === 'slow' ? at + SLOW_BYTES : undefined));
      if (relay.mode !== 'slow') break;
      await new Promise((resolve) => {
        setTimeout(resolve, SLOW_EVERY_MS);
      });
    }
    from.resume();
  }
  relay.set = (mode) => {
    relay.mode = mode;
    if (mode === 'cut') for (const socket of sockets) socket.destroy();
  };
  relay.end = () => {
    relay.set('cut');
    server.close();
  };
  await new Promise((resolve) => {
    server.listen(0, '127.0.0.1', resolve);
  });
  relay.port = server.address().port;
  return relay;
}

/**
 * Starts a node with a link to what the relay leads to, which publishes one of the streams to a DDS
 * topic.
 */
export async function startSubscriber(chappe, folder, relay, stream) {
  mkdirSync(folder, { recursive: true });
  const file = join(folder, 'node.toml');
  writeFileSync(
    file,
    [
      'name = "subscriber"',
      '[http]',
      'listen = "127.0.0.1:0"',
      '[discovery]',
      'enabled = false',
      '[[links]]',
      'name = "plant"',
      'kind = "http_pull"',
      `address = "http://127.0.0.1:${relay.port}"`,
      'streams = ["*"]',
      '[dds]',
      'domain = 37',
      '',
    ].join('\n'),
  );
  mkdirSync(join(folder, 'exporters'));
  writeFileSync(
    join(folder, 'exporters', 'first.toml'),
    [
      'kind = "dds"',
      `streams = ["${stream}"]`,
      'start = "new"',
      'topic = "plant/first"',
      'acknowledge = "received"',
      'readers = 0',
      '',
    ].join('\n'),
  );
  const child = spawn(chappe, ['serve', file, '--json'], { stdio: ['ignore', 'pipe', 'pipe'] });
  const node = { child, address: null, text: '' };
  child.stderr.on('data', (data) => {
    node.text = (node.text + data).slice(-8000);
  });
  createInterface({ input: child.stdout }).on('line', (line) => {
    node.address = JSON.parse(line).address;
  });
  await until('the subscriber', 15_000, () => node.address);
  return node;
}

/** The page of links while the link works, is cut, is slow and works again. */
export async function seesLinks(page, node, relay, photograph) {
  const row = page.locator('table.links tbody tr', { hasText: 'plant' }).first();
  const cell = (label) => row.locator(`td[data-label="${label}"]`);
  const caption = () => page.locator('.links-picture .caption').first().textContent();
  const link = async () => {
    const answer = await fetch(`${node.address}/api/v1/links/plant`);
    return answer.json();
  };
  await page.goto(`${node.address}/#/links`);
  await row.waitFor({ timeout: 15_000 });
  await until('a connected link', 15_000, async () => (await cell('state').innerText()) === 'connected');
  const moving = /^[1-9]|^0\.[1-9]/;
  await until('a rate', 20_000, async () => moving.test(await cell('rate').innerText()));
  await until('the rate in the picture', 10_000, async () => moving.test(await caption()));
  const offset = () =>
    page.locator('.links-picture .marks').first().getAttribute('stroke-dashoffset');
  const before = await offset();
  await until('marks that run', 5_000, async () => (await offset()) !== before);
  await photograph('links');
  await row.locator('a').first().click();
  const streams = page.locator('table.links tbody tr');
  await until('its streams', 10_000, async () => (await streams.count()) >= 6);
  await photograph('links-one');
  await page.goto(`${node.address}/#/links`);
  relay.set('cut');
  await until('a link that is not connected', 20_000, async () => {
    const state = await cell('state').innerText();
    return state && state !== 'connected';
  });
  await page
    .locator('.links-picture .wire:not([data-state="connected"])')
    .waitFor({ state: 'attached' });
  const { reconnects } = await link();
  await photograph('links-cut');
  relay.set('slow');
  // A pull knows how late it is, and not how many elements it lacks.
  await until('a lag', 60_000, async () => (await cell('lag').innerText()).endsWith('late'));
  await photograph('links-behind');
  relay.set('open');
  await until('nothing behind', 60_000, async () => (await cell('lag').innerText()) === '-');
  await until('connected', 5_000, async () => (await cell('state').innerText()) === 'connected');
  const after = await link();
  if (!(after.reconnects >= reconnects) || after.reconnects < 1) {
    throw new Error(`reconnects: ${reconnects}, then ${after.reconnects}`);
  }
  return `${after.streams.length} streams, connected again ${after.reconnects} times`;
}

/** The page of DDS topics: what is published, how it is paced, and what a volatile topic may lose. */
export async function seesTopics(page, node, photograph) {
  await page.goto(`${node.address}/#/dds`);
  const table = (name) => page.getByRole('region', { name, exact: true });
  const row = (name) => table(name).locator('tbody tr', { hasText: 'plant/first' });
  await row('Writers').waitFor({ timeout: 30_000 });
  const sent = () => row('Writers').locator('td[data-label="sent"]').innerText();
  await until('samples', 30_000, async () => /^[1-9]/.test(await sent()));
  const pace = await row('Writers').locator('td[data-label="pace"]').innerText();
  if (!/measuring|idle|rising|holding|falling|draining/.test(pace)) throw new Error(`pace: ${pace}`);
  await row('Writers').locator('canvas.spark').waitFor();
  const trouble = await row('Published streams').locator('td[data-label="trouble"]').innerText();
  if (!trouble.includes('transient_local')) throw new Error(`trouble: ${trouble}`);
  await photograph('dds');
  return `${await sent()} samples, ${pace.trim()}`;
}

/** The origin's side: who reads there. */
export async function seesReader(page, demo) {
  await page.goto(`${demo.address}/#/links`);
  const reader = page.locator('table.links tbody tr', { hasText: 'HTTP pull' }).first();
  await reader.waitFor({ timeout: 15_000 });
  return (await reader.innerText()).replace(/\s+/g, ' ');
}
