// SPDX-License-Identifier: Apache-2.0
// The same as writer_python_redis.py with node-redis, which sends from an event loop:
//
//     node writer_node_redis.mjs FOLDER SOCKET NAME SEED
//
// FOLDER: where npm installed the package redis.
import { writeSync } from 'node:fs';
import { createRequire } from 'node:module';
import { createInterface } from 'node:readline';

const [folder, path, name, seed] = process.argv.slice(2);
const keys = Array.from({ length: 6 }, (_, i) => `${name}.${i}`);
let state = Number(seed) >>> 0 || 1;

function below(limit) {
  // xorshift32
  state ^= state << 13; state >>>= 0;
  state ^= state >>> 17;
  state ^= state << 5; state >>>= 0;
  return state % limit;
}

// At once and in one piece: a command is only sent when all that was to be said before it is out.
function say(...lines) {
  let bytes = Buffer.from(lines.map((line) => `${line}\n`).join(''));
  while (bytes.length > 0) {
    try {
      bytes = bytes.subarray(writeSync(1, bytes));
    } catch (error) {
      if (error.code !== 'EAGAIN') throw error;
    }
  }
}

let createClient;
let ErrorReply;
try {
  ({ createClient, ErrorReply } = createRequire(`${folder}/`)('redis'));
} catch {
  say(`absent: no package redis in ${folder} (the test clients.npm_install puts it there)`);
  process.exit(77);
}

async function write(ask, token, versions) {
  const chosen = below(10) < 3 ? keys.slice(0, 2) : [keys[below(keys.length)]];
  const deletes = chosen.length === 1 && below(5) === 0;
  const value = deletes ? '-' : 'abcdefgh'[below(8)].repeat(1 + below(300));
  const told = chosen.map((key) => `${key} ${token} ${versions[key] + 1} ${value}`);
  say(...told.map((line) => `try ${line}`));
  let reply;
  if (chosen.length === 2) {
    reply = await ask('FENCE.MSET', token, '2', chosen[0], value, chosen[1], value, 'LEASE', name);
  } else if (deletes) {
    reply = [await ask('FENCE.DEL', chosen[0], token, 'LEASE', name)];
  } else {
    reply = [await ask('FENCE.SET', chosen[0], token, value, 'LEASE', name)];
  }
  for (const key of chosen) versions[key] += 1;
  if (chosen.some((key, i) => reply[i] !== versions[key])) say(`wrong version ${reply}`);
  say(...told.map((line) => `ack ${line}`));
}

async function work(client) {
  const ask = (...words) => client.sendCommand(words);
  const versions = {};
  for (const key of keys) {
    const shown = await ask('FENCE.GET', key);
    versions[key] = shown[shown.indexOf('version') + 1];
  }
  for (;;) {
    const owner = `${name}-${Date.now()}-${below(1e9)}`;
    const granted = await ask('LEASE.ACQUIRE', name, owner, '3600000');
    if (granted === null) say('wrong: the lease is not free');
    const token = granted[0];
    say(`grant ${name} ${owner} ${token}`);
    for (let i = 0; i < 20; ++i) await write(ask, token, versions);
    say(`releasing ${name}`);
    await ask('LEASE.RELEASE', name, owner, token);
    say(`released ${name}`);
  }
}

for await (const line of createInterface({ input: process.stdin })) {
  const client = createClient({
    RESP: 2, disableOfflineQueue: true, socket: { path, reconnectStrategy: false },
  });
  client.on('error', () => {});  // The command in flight is told, too.
  try {
    await client.connect();
    await work(client);
  } catch (error) {
    // Everything else is the end of the connection.
    if (error instanceof ErrorReply) say(`wrong ${error}`);
  }
  if (client.isOpen) client.destroy();
  say('gone');
}
