// Goal: the guide that a node serves under /docs can be read by everyone. No page has a violation that axe-core finds, is
// wider than the screen, breaks the content security policy or asks a foreign host; search finds a section by its words, and
// the contents open on a telephone and by keyboard.
// Method: the built guide, the real program, Chromium by playwright-core. Every page at both widths and in both schemes.
//   node guide.mjs CHAPPE OUT GUIDE    the program, a folder for screenshots and results, the folder of the built guide

import { spawn } from 'node:child_process';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join, resolve } from 'node:path';
import { createInterface } from 'node:readline';

import { end } from './demo.mjs';

const { chromium } = await import(process.env.PLAYWRIGHT ?? 'playwright-core');
const axe = readFileSync(process.env.AXE ?? createRequire(import.meta.url).resolve('axe-core'), 'utf8');
const [chappe, out, guide] = process.argv.slice(2).map((path) => resolve(path));
/** reason: a debug build on a busy machine takes some seconds to start. */
const START_MS = 60_000;
/** Widths and schemes, with the number of pages: all pages see both widths and both schemes. */
const VIEWS = [
  [1360, 'light', Infinity],
  [390, 'dark', Infinity],
  [1360, 'dark', 8],
  [390, 'light', 8],
];
const faults = [];

function check(holds, what) {
  if (!holds) throw new Error(`does not hold: ${what}`);
}

/** Starts a node with nothing but the guide; resolves to its address. */
async function startNode(directory) {
  const settings = [`http.docs=${guide}`, 'http.listen=127.0.0.1:0', 'discovery.enabled=false', `data_directory=${directory}`];
  const flags = settings.flatMap((setting) => ['--set', setting]);
  const child = spawn(chappe, ['serve', '--json', ...flags], { cwd: directory, stdio: ['ignore', 'pipe', 'pipe'] });
  const lines = [];
  const address = await new Promise((found, failed) => {
    const late = setTimeout(() => failed(new Error(`no address within ${START_MS} ms:\n${lines.join('\n')}`)), START_MS);
    for (const output of [child.stdout, child.stderr]) {
      createInterface({ input: output }).on('line', (line) => {
        lines.push(line);
        const match = /http:\/\/127\.0\.0\.1:\d+/u.exec(line);
        if (!match) return;
        clearTimeout(late);
        found(match[0]);
      });
    }
    child.on('exit', (code) => failed(new Error(`ended with ${code}:\n${lines.join('\n')}`)));
  });
  return { child, address };
}

async function newPage(browser, address, width, scheme) {
  const context = await browser.newContext({
    viewport: { width, height: width > 800 ? 800 : 844 },
    colorScheme: scheme,
    reducedMotion: 'reduce',
  });
  const page = await context.newPage();
  const fault = (text) => faults.push(`${width} ${scheme} ${page.url()}: ${text}`);
  page.on('pageerror', (error) => fault(`error: ${error.message}`));
  page.on('console', (message) => {
    if (message.type() === 'error') fault(`console: ${message.text()}`);
  });
  page.on('request', (request) => {
    const url = new URL(request.url());
    if (url.protocol !== 'data:' && url.origin !== new URL(address).origin) fault(`foreign host: ${url.host}`);
  });
  page.on('response', (response) => {
    if (response.status() >= 400) fault(`status ${response.status()}: ${response.url()}`);
  });
  return page;
}

/** The pages of the guide, as its contents list them. */
async function pages(page, address) {
  await page.goto(`${address}/docs`);
  check(page.url() === `${address}/docs/`, '/docs leads to the first page');
  const links = await page.locator('#contents a').evaluateAll((all) => all.map((link) => link.href));
  return [...new Set(links)];
}

async function audit(page, width, url) {
  await page.goto(url);
  const overflow = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
  if (overflow > 0) faults.push(`${width} ${url}: ${overflow} pixels wider than the screen`);
  // By the debugger, so the page's policy stays as it is.
  await page.evaluate(axe);
  const { violations } = await page.evaluate(() => globalThis.axe.run(document));
  for (const { id, help, nodes } of violations)
    faults.push(`${width} ${url}: ${id}: ${help}: ${nodes[0].html.slice(0, 160)} (${nodes.length})`);
}

async function findsByWords(page, address) {
  await page.goto(`${address}/docs/`);
  await page.keyboard.press('/');
  await page.keyboard.type('durability levels');
  const first = page.locator('#found li a').first();
  await first.waitFor({ timeout: 20_000 });
  const text = await first.innerText();
  await first.click();
  await page.waitForURL((url) => url.pathname !== '/docs/');
  check(/durab|level/iu.test(await page.locator('main').innerText()), 'the result has the words');
  await page.fill('#words', 'qqxzzy');
  await page.getByText('Nothing found').waitFor();
  return text;
}

async function opensContents(page, address) {
  await page.goto(`${address}/docs/`);
  const menu = page.getByRole('button', { name: 'Contents' });
  await menu.focus();
  await page.keyboard.press('Enter');
  check((await menu.getAttribute('aria-expanded')) === 'true', 'the button says that the contents are open');
  const link = page.locator('#contents a').nth(1);
  await link.click();
  check(new URL(page.url()).pathname !== '/docs/', 'a page of the contents opens');
}

const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium',
  args: ['--headless', '--no-sandbox', '--disable-gpu', '--no-first-run', '--disable-background-networking'],
});
const directory = join(out, 'guide');
mkdirSync(directory, { recursive: true, mode: 0o700 });
let node;
try {
  node = await startNode(directory);
  const { address } = node;
  let count = 0;
  for (const [width, scheme, most] of VIEWS) {
    const page = await newPage(browser, address, width, scheme);
    const all = await pages(page, address);
    check(all.length > 50, `the guide has all its pages: ${all.length}`);
    await page.screenshot({ path: join(directory, `first-${width}-${scheme}.png`) });
    const some = all.slice(0, most);
    for (const url of some) await audit(page, width, url);
    count += some.length;
    await page.context().close();
  }
  const wide = await newPage(browser, address, 1360, 'light');
  const found = await findsByWords(wide, address);
  const narrow = await newPage(browser, address, 390, 'dark');
  await opensContents(narrow, address);
  check(faults.length === 0, `no fault of a page:\n${faults.join('\n')}`);
  process.stdout.write(`ok the guide: ${count} pages without a violation, search finds ${JSON.stringify(found)}\n`);
} catch (error) {
  process.stderr.write(`failed: the guide: ${error.message}\n`);
  process.exitCode = 1;
} finally {
  writeFileSync(join(directory, 'faults.json'), `${JSON.stringify(faults, null, 2)}\n`);
  await browser.close();
  if (node) await end(node.child);
}
