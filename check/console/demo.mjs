// The demonstration as a process: its events, its devices, further devices, its end.

import { spawn } from 'node:child_process';
import { createInterface } from 'node:readline';

/** Waits until `ask` gives something true; says what was missing when it does not in time. */
export async function until(what, withinMs, ask) {
  const start = performance.now();
  let last = null;
  for (;;) {
    try {
      const answer = await ask();
      if (answer) return answer;
    } catch (error) {
      last = error;
    }
    if (performance.now() - start > withinMs) {
      throw new Error(`${what}: not within ${withinMs} ms${last ? ` (${last.message})` : ''}`);
    }
    await new Promise((resolve) => {
      setTimeout(resolve, 50);
    });
  }
}

/** Whether a process lives. */
export function lives(pid) {
  try {
    process.kill(pid, 0);
    return true;
  } catch {
    return false;
  }
}

/** Starts the demonstration and collects what it prints. */
export function startDemo(chappe) {
  const child = spawn(chappe, ['demo', '--json', '--listen', '127.0.0.1:0'], {
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  const demo = {
    child,
    startedAt: performance.now(),
    address: null,
    devices: [],
    events: [],
    text: '',
  };
  demo.exit = new Promise((resolve) => {
    child.on('exit', (code, signal) => resolve({ code, signal }));
  });
  createInterface({ input: child.stdout }).on('line', (line) => {
    let event;
    try {
      event = JSON.parse(line);
    } catch {
      demo.text += `not JSON: ${line}\n`;
      return;
    }
    demo.events.push(event);
    if (event.event === 'ready') Object.assign(demo, { address: event.address, folder: event.folder });
    if (event.event === 'device' && event.pid) demo.devices.push(event);
  });
  child.stderr.on('data', (data) => {
    demo.text = (demo.text + data).slice(-8000);
  });
  return demo;
}

/** Starts one more device on a loopback address of its own. */
export function startDevice(chappe, file, address) {
  const flags = ['device', 'run', file, '--address', address, '--announce-within', '100ms'];
  const child = spawn(chappe, flags, { stdio: ['ignore', 'ignore', 'pipe'] });
  let text = '';
  child.stderr.on('data', (data) => {
    text = (text + data).slice(-4000);
  });
  return { child, text: () => text };
}

/** Ends a process that was started here and waits for it. */
export async function end(child, signal = 'SIGTERM') {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const gone = new Promise((resolve) => {
    child.on('exit', resolve);
  });
  child.kill(signal);
  await gone;
}
