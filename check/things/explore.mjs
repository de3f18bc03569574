// Explores and uses the directory of a node with node-wot.
//   MODULES=FOLDER node explore.mjs URL TOKEN open|token
import assert from 'node:assert/strict';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';

const load = createRequire(join(process.env.MODULES, 'package.json'));
const { Servient } = load('@node-wot/core');
const { HttpClientFactory } = load('@node-wot/binding-http');

const [url, token, read] = process.argv.slice(2);
const directoryUrl = `${url}/.well-known/wot`;
const ok = (text) => console.log(`ok: ${text}`);

async function servient(ids) {
  const made = new Servient();
  made.addClientFactory(new HttpClientFactory());
  made.addCredentials(Object.fromEntries(ids.map((id) => [id, { token }])));
  return made.start();
}

// The id by which credentials are found is in the Thing Description, which anyone may read.
const first = await servient([]);
const own = await first.requestThingDescription(directoryUrl);
assert.equal(own['@type'], 'ThingDirectory');
ok('the Thing Description of the directory is valid by its JSON Schema');
if (read === 'token') {
  const refused = await first.exploreDirectory(directoryUrl);
  for await (const thing of refused) assert.fail(`${thing.id} without a token`);
  assert.ok(refused.error);
  ok('without a token the list is refused');
}

const wot = await servient([own.id]);
async function explore() {
  const things = [];
  const process = await wot.exploreDirectory(directoryUrl);
  for await (const thing of process) things.push(thing);
  assert.equal(process.error, undefined, String(process.error));
  return things;
}

// What a client waits for: the device is found and described.
let device;
for (;;) {
  const things = await explore();
  device = things.find((thing) => Object.keys(thing.properties ?? {}).length > 0);
  if (device) break;
  await pause(200);
}
ok(`exploreDirectory finds the device ${device.title}`);
assert.match(device.id, /^urn:chappe:device:/);

const owner = await servient([own.id, device.id]);
const consumed = await owner.consume(device);
const [name] = Object.keys(device.properties);
for (;;) {
  const page = await (await consumed.readProperty(name)).value();
  if (page.elements.length === 1) {
    assert.equal(typeof page.elements[0].values.value, 'number');
    break;
  }
  await pause(200);
}
ok('readProperty gives the newest element of its stream');
if (read === 'open') {
  await new Promise((resolve, reject) => {
    consumed.subscribeEvent(name, async (output) => {
      const data = await output.value();
      const batch = typeof data === 'string' ? JSON.parse(data) : data;
      if (batch.elements.length > 0) resolve();
    }, reject).catch(reject);
  });
  ok('subscribeEvent gives elements as they arrive');
}

const directory = await owner.consume(own);
const lamp = {
  '@context': ['https://www.w3.org/2022/wot/td/v1.1', { saref: 'https://w3id.org/saref#' }],
  '@type': 'saref:LightSwitch',
  title: 'Kitchen lamp',
  securityDefinitions: { nosec_sc: { scheme: 'nosec' } },
  security: 'nosec_sc',
  properties: { power: { type: 'number', unit: 'W', forms: [{ href: 'http://lamp.example/power' }] } },
};
const heard = [];
if (read === 'open') {
  for (const event of ['thingCreated', 'thingDeleted']) {
    await directory.subscribeEvent(event, async (output) => {
      const data = await output.value();
      heard.push([event, (typeof data === 'string' ? JSON.parse(data) : data).id]);
    });
  }
  await pause(500);
}
await directory.invokeAction('createAnonymousThing', lamp);
const found = (await explore()).find((thing) => thing.title === lamp.title);
assert.match(found.id, /^urn:uuid:/);
assert.ok(found.registration.created);
ok('createAnonymousThing registers a thing, which exploreDirectory finds');
const id = { uriVariables: { id: found.id } };
await directory.invokeAction('partiallyUpdateThing', { title: 'Hall lamp' }, id);
const retrieved = await (await directory.invokeAction('retrieveThing', undefined, id)).value();
assert.equal(retrieved.title, 'Hall lamp');
ok('partiallyUpdateThing and retrieveThing');
const query = { uriVariables: { query: "$[?@.title=='Hall lamp'].id" } };
const selected = await (await directory.invokeAction('searchJSONPath', undefined, query)).value();
assert.deepEqual(selected, [found.id]);
const sparql = 'PREFIX td: <https://www.w3.org/2019/wot/td#> ASK { ?thing td:title "Hall lamp" }';
const asked = await directory.invokeAction('searchSPARQL', undefined, { uriVariables: { query: sparql } });
assert.equal((await asked.value()).boolean, true);
ok('searchJSONPath and searchSPARQL');
await directory.invokeAction('deleteThing', undefined, id);
assert.ok(!(await explore()).some((thing) => thing.id === found.id));
ok('deleteThing');
if (read === 'open') {
  while (!heard.some(([event, of]) => event === 'thingDeleted' && of === found.id)) await pause(100);
  assert.ok(heard.some(([event, of]) => event === 'thingCreated' && of === found.id));
  ok('thingCreated and thingDeleted are heard');
}
console.log('done');
process.exit(0);
