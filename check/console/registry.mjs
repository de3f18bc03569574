// A node with entities of two accounts: what its pages of the registry have to show, and what an account
// can change there. Facets count what is found, lists say that they go on, an entity has its metadata,
// surroundings, history, rights and document, and an account without a right has no form for it.

import { spawn } from 'node:child_process';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { createInterface } from 'node:readline';

import { end, until } from './demo.mjs';

const PUMPS = 130;
const PLANT = 'http://example.com/plant';
const ROOM = 'urn:example:room';

function check(holds, what) {
  if (!holds) throw new Error(`does not hold: ${what}`);
}

/** Starts a node without discovery, and fills its registry. */
export async function startRegistry(chappe, folder) {
  mkdirSync(folder, { recursive: true });
  const file = join(folder, 'node.toml');
  writeFileSync(
    file,
    [
      'name = "registry"',
      `data_directory = "${join(folder, 'data')}"`,
      '[http]',
      'listen = "127.0.0.1:0"',
      '[discovery]',
      'enabled = false',
      '',
    ].join('\n'),
  );
  const child = spawn(chappe, ['serve', file, '--json'], { stdio: ['ignore', 'pipe', 'pipe'] });
  const node = { child, text: '', address: null };
  child.stderr.on('data', (data) => {
    node.text = (node.text + data).slice(-8000);
  });
  createInterface({ input: child.stdout }).on('line', (line) => {
    node.address = JSON.parse(line).address ?? node.address;
  });
  await until('the node of the registry is ready', 20_000, () => node.address);
  node.token = readFileSync(join(folder, 'data', 'new-token'), 'utf8').trim();
  await fill(node);
  return node;
}

async function send(node, token, method, path, body) {
  const answer = await fetch(`${node.address}${path}`, {
    method,
    headers: { authorization: `Bearer ${token}`, 'content-type': 'application/json' },
    body: body === undefined ? undefined : JSON.stringify(body),
  });
  const text = await answer.text();
  check(answer.ok, `${method} ${path}: ${answer.status} ${text}`);
  return text ? JSON.parse(text) : null;
}

async function fill(node) {
  const account = async (name) => {
    const body = { name, roles: ['write'] };
    const { token } = await send(node, node.token, 'POST', '/api/v1/accounts', body);
    node[name] = token;
  };
  await account('ada');
  await account('bob');
  const publish = (token, entity) => send(node, token, 'POST', '/api/v1/entities', entity);
  const triple = (predicate, object) => ({
    predicate: `${PLANT}#${predicate}`,
    object,
    object_kind: 'iri',
  });
  await publish(node.ada, {
    key: ROOM,
    name: 'Room <b>3</b>',
    triples: [triple('has', 'urn:example:pump001'), triple('has', 'urn:example:pump002')],
  });
  for (let number = 1; number <= PUMPS; number += 1) {
    const text = String(number).padStart(3, '0');
    await publish(node.ada, {
      key: `urn:example:pump${text}`,
      name: `Pump ${text}`,
      kind: 'device',
      types: [`{${PLANT}}${number % 2 ? 'Pump' : 'Valve'}`],
      triples: number <= 70 ? [triple('in', ROOM)] : [],
    });
  }
  await publish(node.ada, {
    key: 'urn:example:secret',
    name: 'Pump secret',
    kind: 'device',
    triples: [triple('in', ROOM)],
  });
  const rights = '/api/v1/entities/urn:example:secret/rights';
  await send(node, node.ada, 'PUT', rights, { read: [] });
  await publish(node.ada, { key: ROOM, name: 'Room 3', triples: [triple('has', 'urn:example:pump001')] });
  await send(node, node.ada, 'POST', '/things', {
    '@context': 'https://www.w3.org/2022/wot/td/v1.1',
    title: 'Lamp',
    securityDefinitions: { nosec_sc: { scheme: 'nosec' } },
    security: 'nosec_sc',
  }).catch(() => null);
}

async function go(page, node, route) {
  await page.goto(`${node.address}/#/${route}`);
  await page.reload();
}

/** The page as an account sees it. */
async function as(page, node, token, route) {
  await page.goto(node.address);
  await page.evaluate((text) => {
    if (text) sessionStorage.setItem('chappe-token', text);
    else sessionStorage.removeItem('chappe-token');
  }, token);
  await go(page, node, route);
}

const count = (page, selector) => page.locator(selector).count();
const section = (page, name) => page.locator(`section[aria-label="${name}"]`);
const facet = (page, group, text) =>
  section(page, group).locator('button.facet').filter({ hasText: text });

/** Facets, their counts, and the parts of a long list. */
async function seesFacets(page, node) {
  await as(page, node, null, 'registry?prefix=pump');
  const foot = page.locator('p.foot[role="status"]');
  await until('a part of the pumps', 10_000, async () =>
    (await foot.innerText()).startsWith(`100 of ${PUMPS} are shown`),
  );
  check((await facet(page, 'Type', 'Pump').innerText()).includes(String(PUMPS / 2)), 'a count');
  await page.getByRole('button', { name: 'Show 100 more' }).click();
  await until('all pumps', 10_000, async () =>
    (await foot.innerText()).startsWith(`${PUMPS} found, all are shown`),
  );
  check((await count(page, 'table tbody tr')) === PUMPS, 'no pump is shown twice or left out');
  await facet(page, 'Type', 'Valve').click();
  await until('valves alone', 10_000, async () =>
    (await foot.innerText()).startsWith(`${PUMPS / 2} found`),
  );
  check(page.url().includes('type='), 'the address has the chosen value');
  check(
    (await facet(page, 'Type', 'Valve').getAttribute('aria-pressed')) === 'true',
    'the chosen value is marked',
  );
  await facet(page, 'Type', 'Valve').focus();
  await page.keyboard.press('Enter');
  await until('no criterion but the name', 10_000, async () =>
    (await foot.innerText()).startsWith(`100 of ${PUMPS}`),
  );
  // The owner finds one more.
  await as(page, node, node.ada, 'registry?prefix=pump');
  await until('the hidden pump of its owner', 10_000, async () =>
    (await foot.innerText()).startsWith(`100 of ${PUMPS + 1}`),
  );
}

/** What surrounds an entity, what it was, and what strangers may not do. */
async function seesEntity(page, node) {
  await as(page, node, null, `registry/${encodeURIComponent(ROOM)}`);
  await page.locator('h1', { hasText: 'Room 3' }).waitFor({ timeout: 10_000 });
  const around = section(page, 'Surroundings');
  await until('the first neighbours', 10_000, async () => (await around.locator('tbody tr').count()) === 20);
  check((await around.locator('svg .station').count()) === 17, 'sixteen neighbours are drawn');
  for (const rows of [40, 60, 70]) {
    check((await around.innerText()).includes('are shown.'), 'a part of a list says that it is one');
    await around.getByRole('button', { name: 'Show more' }).click();
    await until('more neighbours', 10_000, async () => (await around.locator('tbody tr').count()) === rows);
  }
  check((await around.getByRole('button').count()) === 0, 'the whole list ends');
  check(!(await around.innerText()).includes('secret'), 'a hidden neighbour is not named');
  const past = section(page, 'History');
  await until('its changes', 10_000, async () => (await past.locator('tbody tr').count()) === 2);
  check((await past.innerText()).includes('1 property removed'), 'the history has what was removed');
  check((await past.innerText()).includes('whole history'), 'the history says where it begins');
  check((await past.locator('b').count()) === 0, 'a name is text');
  check((await section(page, 'Metadata').locator('form').count()) === 0, 'strangers have no form');
  check((await section(page, 'Rights').locator('form').count()) === 0, 'and none for rights');
  await section(page, 'Metadata').getByRole('button', { name: 'Use the token' }).click();
  await page.locator('form.gate input').fill(node.bob);
  await page.locator('form.gate button').click();
  await page.getByRole('button', { name: 'Attach a piece' }).waitFor({ timeout: 10_000 });
}

/** A piece is attached, changed and withdrawn by its author; others only read it. */
async function annotates(page, node) {
  await as(page, node, node.bob, `registry/${encodeURIComponent(ROOM)}`);
  const metadata = section(page, 'Metadata');
  const rows = metadata.locator('table.pieces > tbody > tr');
  await page.getByRole('button', { name: 'Attach a piece' }).click();
  await page.getByLabel('Type, an IRI', { exact: true }).fill(`${PLANT}#calibrated`);
  await page.getByLabel('Value', { exact: true }).fill('<i>2026-11-20</i>');
  await metadata.getByRole('button', { name: 'Attach', exact: true }).click();
  await until('the piece', 10_000, async () => (await rows.count()) === 1);
  check((await rows.first().innerText()).includes('<i>2026-11-20</i>'), 'a value is text');
  check((await rows.first().innerText()).includes('bob'), 'it names its author');
  await rows.getByRole('button', { name: 'Change' }).click();
  await page.getByLabel('Value is a').selectOption('typed');
  await page.getByLabel('Value', { exact: true }).fill('2026-11-21');
  await page.getByLabel('Datatype, an IRI').fill('http://www.w3.org/2001/XMLSchema#date');
  await metadata.locator('form').getByRole('button', { name: 'Change' }).click();
  await until('its new value', 10_000, async () =>
    (await rows.first().innerText()).includes('2026-11-21'),
  );
  await as(page, node, node.ada, `registry/${encodeURIComponent(ROOM)}`);
  await until('the piece of another', 10_000, async () => (await rows.count()) === 1);
  check((await rows.getByRole('button').count()) === 0, 'only its author may change it');
  await as(page, node, node.bob, `registry/${encodeURIComponent(ROOM)}`);
  await rows.getByRole('button', { name: 'Withdraw' }).click();
  await rows.getByRole('button', { name: 'Withdraw for good?' }).click();
  await until('no piece', 10_000, async () => (await rows.count()) === 0);
  await page.getByRole('button', { name: 'Attach a piece' }).click();
  await page.getByLabel('Type, an IRI', { exact: true }).fill('not an IRI');
  await page.getByLabel('Value', { exact: true }).fill('x');
  await metadata.getByRole('button', { name: 'Attach', exact: true }).click();
  await metadata.locator('.problem').waitFor({ timeout: 10_000 });
}

/** The owner takes and gives rights. */
async function setsRights(page, node) {
  const key = encodeURIComponent('urn:example:pump130');
  await as(page, node, node.ada, `registry/${key}`);
  const form = section(page, 'Rights').locator('form');
  await form.waitFor({ timeout: 10_000 });
  const read = form.locator('input[name="right-read"]');
  check((await read.inputValue()) === 'everybody', 'everybody may read it');
  check(await form.locator('input[name="right-annotate"]').isDisabled(), 'nothing is stated to annotate');
  await read.fill('account:nobody');
  await form.getByRole('button', { name: 'Set rights' }).click();
  const problem = section(page, 'Rights').locator('.problem');
  await problem.waitFor({ timeout: 10_000 });
  check((await problem.innerText()).includes('hint'), 'a misspelt name has a hint');
  await read.fill('account:bob');
  await form.getByRole('button', { name: 'Set rights' }).click();
  await until('rights are set', 10_000, async () =>
    (await section(page, 'Rights').innerText()).includes('The rights are set.'),
  );
  await until('the change in the history', 10_000, async () =>
    (await section(page, 'History').innerText()).includes('its rights changed'),
  );
  await as(page, node, null, `registry/${key}`);
  await page.locator('h1', { hasText: 'Not in the registry' }).waitFor({ timeout: 10_000 });
  await as(page, node, node.bob, `registry/${key}`);
  await page.locator('h1', { hasText: 'Pump 130' }).waitFor({ timeout: 10_000 });
}

/** A Thing Description is shown with the thing. */
async function seesDocument(page, node) {
  await as(page, node, null, 'registry?kind=thing');
  await page.locator('table tbody tr a', { hasText: 'Lamp' }).first().click();
  const description = section(page, 'Thing Description');
  await description.locator('summary').click();
  await until('the text', 10_000, async () => (await description.innerText()).includes('nosec_sc'));
}

/** Every field has a name, and no page is wider than the screen. */
async function fits(page, node, photograph) {
  const routes = {
    'registry-search': 'registry?prefix=pump',
    'registry-entity': `registry/${encodeURIComponent(ROOM)}`,
  };
  for (const [name, route] of Object.entries(routes)) {
    await as(page, node, node.ada, route);
    await page.locator('table tbody tr').first().waitFor({ timeout: 10_000 });
    await page.waitForTimeout(800);
    const unnamed = await page.evaluate(() =>
      [...document.querySelectorAll('main input, main select, main textarea, main button')]
        .filter((one) => !one.labels?.length && !one.ariaLabel && !one.textContent.trim())
        .map((one) => one.outerHTML),
    );
    check(unnamed.length === 0, `every field of ${route} has a name: ${unnamed}`);
    await photograph(name);
  }
}

/** All of it, on a page of its own. */
export async function seesRegistry(page, node, photograph) {
  try {
    await seesFacets(page, node);
    await seesEntity(page, node);
    await annotates(page, node);
    await setsRights(page, node);
    await seesDocument(page, node);
    await fits(page, node, photograph);
    return `${PUMPS} entities, 70 neighbours, a piece attached, changed and withdrawn, rights set`;
  } finally {
    await end(node.child);
  }
}
