// Goal: the console shows what the demonstration does. Six devices are seen, a chart moves and
// stops when it is paused, the registry finds, a virtual sensor is rebound after its device was
// killed and another one was started, and a hostile name is text. Nothing comes from a foreign
// host, nothing breaks the content security policy, no page is wider than the screen. A second node
// reads the streams over a link that is cut, slowed and mended, and both pages of links show it. On a
// third node accounts annotate entities and set rights (registry.mjs).
// Method: the real program, Chromium by playwright-core. Screenshots of every page at both widths
// in both schemes and results.json go to the output folder.

import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

import { end, lives, startDemo, startDevice, until } from './demo.mjs';
import { seesLinks, seesReader, seesTopics, startRelay, startSubscriber } from './links.mjs';
import { seesRegistry, startRegistry } from './registry.mjs';

const { chromium } = await import(process.env.PLAYWRIGHT ?? 'playwright-core');
const [chappe, out] = process.argv.slice(2);
const demoFiles = join(dirname(fileURLToPath(import.meta.url)), '../../crates/chappe/demo');

const READY_MS = 20_000;
const DEVICES_MS = 15_000;
const REBIND_MS = 60_000;
const HOSTILE = '<script>alert(1)</script>';
const ECG = 'urn:oid:1.2.840.10004.1.1.1.0.0.1.131330';
const results = { steps: [], measured: {}, faults: [] };

function check(holds, what) {
  if (!holds) throw new Error(`does not hold: ${what}`);
}

async function step(name, work) {
  const start = performance.now();
  const detail = await work();
  const took = Math.round(performance.now() - start);
  results.steps.push({ name, ms: took, detail: detail ?? null });
  process.stdout.write(`ok ${name} (${took} ms)${detail ? `: ${detail}` : ''}\n`);
}

async function api(demo, path) {
  const answer = await fetch(`${demo.address}/api/v1/${path}`);
  if (!answer.ok) throw new Error(`${path}: status ${answer.status}`);
  return answer.json();
}

async function newPage(browser, demo, width, scheme) {
  const context = await browser.newContext({
    viewport: { width, height: width > 800 ? 800 : 844 },
    colorScheme: scheme,
    deviceScaleFactor: width > 800 ? 1 : 2,
  });
  const page = await context.newPage();
  const fault = (text) => results.faults.push(`${width} ${scheme} ${page.url()}: ${text}`);
  page.on('pageerror', (error) => fault(`error: ${error.message}`));
  page.on('console', (message) => {
    if (message.type() === 'error') fault(`console: ${message.text()}`);
  });
  page.on('dialog', (dialog) => {
    fault(`dialog: ${dialog.message()}`);
    dialog.dismiss();
  });
  page.on('request', (request) => {
    const url = new URL(request.url());
    if (url.protocol !== 'data:' && url.origin !== new URL(demo.address).origin)
      fault(`foreign host: ${url.host}`);
  });
  return page;
}

/** Goes to a page of the console as a click would, without loading it anew. */
async function go(page, route) {
  await page.evaluate((hash) => {
    location.hash = hash;
  }, `#/${route}`);
  await page.waitForFunction((hash) => location.hash === hash, `#/${route}`);
}

const encode = encodeURIComponent;
const picture = (page) =>
  page.evaluate(() => document.querySelector('.plot canvas')?.toDataURL() ?? '');

async function seesDevices(page) {
  await go(page, 'devices');
  const usable = () => page.locator('.rows.devices > li[data-state="usable"]').count();
  await until('six usable devices', DEVICES_MS, async () => (await usable()) >= 6);
  return `${await usable()} usable`;
}

async function seesMovement(page, stream) {
  await go(page, `streams/${encode(stream)}`);
  await until('a chart', 10_000, async () => (await picture(page)).length > 1000);
  const number = () => page.locator('table.values tbody tr td:nth-child(2)').first().innerText();
  const [before, first] = [await picture(page), await number()];
  await until('another picture', 5_000, async () => (await picture(page)) !== before);
  await until('another element', 5_000, async () => (await number()) !== first);
  await page.getByRole('button', { name: 'Pause' }).click();
  await page.waitForTimeout(300);
  const still = await picture(page);
  await page.waitForTimeout(1500);
  check((await picture(page)) === still, 'a paused chart stands still');
  await page.getByRole('button', { name: 'Go on' }).click();
  await until('movement after the pause', 5_000, async () => (await picture(page)) !== still);
  await page.locator('.plot').first().focus();
  await page.keyboard.press('End');
  await page.keyboard.press('ArrowLeft');
  const reading = await until('a reading by keyboard', 5_000, () =>
    page.locator('.reading').innerText(),
  );
  return `reads ${reading.trim().replace(/\s+/g, ' ')}`;
}

async function findsInRegistry(page) {
  await go(page, 'registry');
  await page.fill('input[name="prefix"]', 'electro');
  const device = page.locator('table tbody tr', { hasText: 'Electrocardiograph' }).first();
  await device.waitFor({ timeout: 10_000 });
  await page.fill('input[name="prefix"]', '');
  await page.fill('input[name="observed_property"]', ECG);
  const rows = page.locator('table tbody tr');
  await until('only streams by what is observed', 10_000, async () => {
    const all = await rows.count();
    return all >= 1 && (await rows.filter({ hasText: 'stream' }).count()) === all;
  });
  await page.locator('table tbody tr a').first().click();
  await until(
    'its triples',
    10_000,
    async () => (await page.locator('table.triples tbody tr').count()) > 2,
  );
  await go(page, 'registry?view=sparql');
  await until(
    'an answer to SPARQL',
    10_000,
    async () => (await page.locator('table tbody tr').count()) >= 6,
  );
  await go(page, 'streams?view=sql');
  await until(
    'an answer to SQL',
    10_000,
    async () => (await page.locator('table tbody tr').count()) >= 1,
  );
  return null;
}

async function heartRate(demo) {
  const sensor = await api(demo, 'virtual-sensors/heart-rate');
  return {
    sensor,
    bound: sensor.sources.flatMap((source) => source.bound.map((one) => one.stream)),
  };
}

async function rebinds(page, demo, extra) {
  await go(page, 'sensors/heart-rate');
  await page.locator('.sources > li[data-bound="yes"]').waitFor({ timeout: 20_000 });
  await until('a heart rate', 20_000, async () => {
    const rate = parseFloat((await page.locator('.strip .lead').innerText()).replace(/^\D*/, ''));
    return rate > 40 && rate < 220;
  });
  const [before] = (await heartRate(demo)).bound;
  const source = await api(demo, `streams/${encode(before)}`);
  const { name } = await api(demo, `devices/${encode(source.source)}`);
  const describes = (file) => readFileSync(file, 'utf8').includes(`\nname = "${name}"\n`);
  const victim = demo.devices.find((one) => describes(one.file));
  check(victim, `the demonstration said which process ${name} is`);
  const killed = performance.now();
  process.kill(victim.pid, 'SIGKILL');
  await page.locator('.sources > li[data-bound="no"]').waitFor({ timeout: REBIND_MS });
  results.measured.unbound_ms = Math.round(performance.now() - killed);
  await page.screenshot({ path: join(out, 'unbound.png'), fullPage: true });
  const started = performance.now();
  extra.push(startDevice(chappe, join(demoFiles, 'spare/electrocardiograph.toml'), '127.0.0.77'));
  await page.locator('.sources > li[data-bound="yes"]').waitFor({ timeout: REBIND_MS });
  results.measured.rebound_ms = Math.round(performance.now() - started);
  const [after] = (await heartRate(demo)).bound;
  check(after !== before, `${after} is another stream than ${before}`);
  check(
    (await page.locator('table tbody tr', { hasText: after }).count()) >= 1,
    'the history names the new stream',
  );
  await page.screenshot({ path: join(out, 'rebound.png'), fullPage: true });
  const { unbound_ms: unbound, rebound_ms: rebound } = results.measured;
  return `${before} → ${after}, unbound after ${unbound} ms, bound ${rebound} ms after the start`;
}

async function triesSensor(page, demo) {
  const token = readFileSync(join(demo.folder, 'data', 'new-token'), 'utf8').trim();
  await page.evaluate((text) => sessionStorage.setItem('chappe-token', text), token);
  await go(page, 'sensors/air-temperature-mean');
  await page.reload();
  await page.locator('summary', { hasText: 'The file' }).click();
  const box = page.locator('.editor textarea');
  await until('the text of the file', 10_000, async () =>
    (await box.inputValue()).includes('avg(value)'),
  );
  await page.getByRole('button', { name: 'Check and try' }).click();
  await until(
    'a preview',
    10_000,
    async () => (await page.locator('.editor table tbody tr').count()) >= 1,
  );
  await box.fill((await box.inputValue()).replace('8.0', '9.0'));
  await page.getByRole('button', { name: 'Write the file' }).click();
  await until('the written file', 10_000, async () =>
    (await api(demo, 'virtual-sensors/air-temperature-mean')).sql.includes('9.0'),
  );
  return null;
}

async function showsHostileNameAsText(page, extra) {
  const folder = join(out, 'hostile');
  mkdirSync(folder, { recursive: true });
  writeFileSync(join(folder, 'value.csv'), 'value\n1\n2\n');
  writeFileSync(
    join(folder, 'device.toml'),
    [
      `name = '${HOSTILE}'`,
      `manufacturer = '<img src=x onerror=alert(2)>'`,
      `model = '"><svg onload=alert(3)>'`,
      'namespace = "https://chappe.example/hostile"',
      'types = ["Thing"]',
      '[[event]]',
      'name = "Report"',
      'period_ms = 500',
      'recording = "value.csv"',
      '[[event.field]]',
      'name = "value"',
      'type = "double"',
      '',
    ].join('\n'),
  );
  extra.push(startDevice(chappe, join(folder, 'device.toml'), '127.0.0.78'));
  await go(page, 'devices');
  const row = page.locator('.rows.devices > li', { hasText: HOSTILE });
  await row.waitFor({ timeout: DEVICES_MS });
  await row.locator('a').first().click();
  await page.locator('h1', { hasText: HOSTILE }).waitFor({ timeout: 5_000 });
  check(
    (await page.locator('main script, main img, main h1 script').count()) === 0,
    'no markup came from the device',
  );
  return null;
}

async function photographs(browser, demo, ecg) {
  const pages = [
    '',
    'devices',
    'registry',
    'registry?view=sparql',
    'streams',
    `streams/${encode(ecg)}`,
    'streams?view=sql',
    'sensors',
    'sensors/heart-rate',
    'links',
    'dds',
    'dropped',
    'node',
  ];
  for (const width of [1280, 390]) {
    for (const scheme of ['light', 'dark']) {
      const page = await newPage(browser, demo, width, scheme);
      await page.goto(demo.address);
      await page.locator('#link[data-state="live"]').waitFor({ timeout: 10_000 });
      for (const route of pages) {
        await go(page, route);
        await page.waitForTimeout(600);
        const over = await page.evaluate(
          () => document.documentElement.scrollWidth - window.innerWidth,
        );
        check(over <= 0, `${route || 'overview'} at ${width} is ${over} pixels too wide`);
        const name =
          (route || 'overview').split('/')[0].replace(/\W+/g, '-') +
          (route.includes('/') ? '-one' : '');
        await page.screenshot({
          path: join(out, `${name}-${width}-${scheme}.png`),
          fullPage: true,
        });
      }
      await page.context().close();
    }
  }
  return `${pages.length * 4} screenshots`;
}

/** Fails when a table of the page scrolls sideways in its region. */
async function tablesFit(page, what) {
  const over = await page.evaluate(() =>
    [...document.querySelectorAll('.scroll')].map((one) => one.scrollWidth - one.clientWidth),
  );
  check(over.every((pixels) => pixels <= 0), `${what}: tables are ${over} pixels too wide`);
}

/**
 * A second node that reads this one's streams and publishes one: its page of DDS, and both pages of
 * links, while the line is cut.
 */
async function links(browser, demo, extra, stream) {
  const relay = await startRelay(new URL(demo.address).port);
  const node = await startSubscriber(chappe, join(out, `subscriber-${process.pid}`), relay, stream);
  extra.push({ child: node.child, text: () => node.text });
  const page = await newPage(browser, node, 1280, 'light');
  const photograph = async (name) => {
    for (const width of [1360, 1280, 390]) {
      for (const scheme of ['light', 'dark']) {
        await page.setViewportSize({ width, height: width > 800 ? 800 : 844 });
        await page.emulateMedia({ colorScheme: scheme });
        await page.waitForTimeout(300);
        const over = await page.evaluate(
          () => document.documentElement.scrollWidth - window.innerWidth,
        );
        check(over <= 0, `${name} at ${width} is ${over} pixels too wide`);
        if (name.startsWith('links')) await tablesFit(page, `${name} at ${width}`);
        await page.screenshot({ path: join(out, `${name}-${width}-${scheme}.png`), fullPage: true });
      }
    }
    await page.setViewportSize({ width: 1280, height: 800 });
    await page.emulateMedia({ colorScheme: 'light' });
  };
  try {
    const topics = await seesTopics(page, node, photograph);
    const there = await seesLinks(page, node, relay, photograph);
    const at = await newPage(browser, demo, 1280, 'light');
    const here = await seesReader(at, demo);
    await tablesFit(at, 'the readers at 1280');
    await at.screenshot({ path: join(out, 'links-reader.png'), fullPage: true });
    await at.context().close();
    return `${there}; at the origin: ${here}; published: ${topics}`;
  } finally {
    await page.context().close();
    await end(node.child);
    relay.end();
  }
}

/** A node of its own, whose registry is searched, annotated and given rights by accounts. */
async function registry(browser, extra) {
  const node = await startRegistry(chappe, join(out, `registry-${process.pid}`));
  extra.push({ child: node.child, text: () => node.text });
  const context = { address: node.address };
  const page = await newPage(browser, context, 1360, 'light');
  // What is refused on purpose is an error on the browser's console.
  page.removeAllListeners('console');
  page.on('console', (message) => {
    const isRefusal = /status of (401|403|404|422)/.test(message.text());
    if (message.type() === 'error' && !isRefusal)
      results.faults.push(`registry ${page.url()}: console: ${message.text()}`);
  });
  const photograph = async (name) => {
    for (const width of [1360, 400]) {
      for (const scheme of ['light', 'dark']) {
        await page.setViewportSize({ width, height: 844 });
        await page.emulateMedia({ colorScheme: scheme });
        await page.waitForTimeout(300);
        const over = await page.evaluate(
          () => document.documentElement.scrollWidth - window.innerWidth,
        );
        check(over <= 0, `${name} at ${width} is ${over} pixels too wide`);
        await tablesFit(page, `${name} at ${width}`);
        await page.screenshot({ path: join(out, `${name}-${width}-${scheme}.png`), fullPage: true });
      }
    }
    await page.setViewportSize({ width: 1360, height: 844 });
    await page.emulateMedia({ colorScheme: 'light' });
  };
  try {
    return await seesRegistry(page, node, photograph);
  } finally {
    await page.context().close();
  }
}

async function endsWell(demo) {
  demo.child.kill('SIGINT');
  const { code } = await Promise.race([
    demo.exit,
    new Promise((_, reject) => {
      setTimeout(() => reject(new Error('the demonstration does not end')), 15_000);
    }),
  ]);
  check(code === 0, `it ends with 0, not ${code}`);
  await until('the end of all its devices', 3_000, () =>
    demo.devices.every((one) => !lives(one.pid)),
  );
  return null;
}

async function all(browser, demo, extra) {
  await step('the demonstration is ready', async () => {
    await until('a line with event "ready"', READY_MS, () => demo.address);
    results.measured.ready_ms = Math.round(performance.now() - demo.startedAt);
    return demo.address;
  });
  const page = await newPage(browser, demo, 1280, 'light');
  await step('the first value is on the console', async () => {
    const policy = (await page.goto(demo.address)).headers()['content-security-policy'] ?? '';
    check(
      policy.includes("default-src 'none'") && !policy.includes('unsafe'),
      `the policy is strict: ${policy}`,
    );
    await page.waitForFunction(
      () =>
        [...document.querySelectorAll('.stations small')].some((node) =>
          /\d (Hz|°C|m\/s|mm|ppm)/.test(node.textContent),
        ),
      null,
      { timeout: 20_000 },
    );
    results.measured.first_value_ms = Math.round(performance.now() - demo.startedAt);
    return `${results.measured.first_value_ms} ms after the start of the program`;
  });
  await step('six devices are seen', () => seesDevices(page));
  const { streams } = await api(demo, 'streams');
  const ecg = streams.find((one) =>
    one.fields.some((field) => field.observed_property === ECG),
  )?.name;
  check(ecg, 'there is a stream of an electrocardiogram');
  await step('a chart moves, pauses and is read by keyboard', () => seesMovement(page, ecg));
  await step('the registry is searched', () => findsInRegistry(page));
  await step('the registry: facets, an entity, its metadata and rights', () =>
    registry(browser, extra),
  );
  await step('every page, both widths, both schemes', () => photographs(browser, demo, ecg));
  await step('a link: its rate, a cut, a lag, connected again', () => links(browser, demo, extra, ecg));
  await step('the file of a virtual sensor is tried and written', () => triesSensor(page, demo));
  await step('a virtual sensor is rebound', () => rebinds(page, demo, extra));
  await step('a hostile name is text', () => showsHostileNameAsText(page, extra));
  await step('no fault of a page', async () => {
    check(results.faults.length === 0, results.faults.join('\n'));
  });
  await step('it ends on a signal, and its devices with it', () => endsWell(demo));
}

const extra = [];
const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium',
  args: [
    '--headless',
    '--no-sandbox',
    '--disable-gpu',
    '--disable-quic',
    '--no-first-run',
    '--disable-background-networking',
    '--disable-component-update',
    '--disable-sync',
  ],
});
// The browser first: what is measured is the program.
const demo = startDemo(chappe);
try {
  await all(browser, demo, extra);
} catch (error) {
  results.failed = error.message;
  process.stderr.write(
    `failed: ${error.message}\n${demo.text}${extra.map((one) => one.text()).join('')}`,
  );
  process.exitCode = 1;
} finally {
  await browser.close();
  for (const one of extra) await end(one.child);
  await end(demo.child);
  writeFileSync(join(out, 'results.json'), `${JSON.stringify(results, null, 2)}\n`);
}
