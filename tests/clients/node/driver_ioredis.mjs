// SPDX-License-Identifier: Apache-2.0
// Driver for ioredis, as run_conformance.py describes it.
import { createInterface } from 'node:readline';
import { Redis } from 'ioredis';

const [host, port, protocol] = process.argv.slice(2);
if (protocol !== '2') {
  console.log('ioredis 5 speaks RESP2 only');
  process.exit(77);
}

function plain(reply) {
  if (Buffer.isBuffer(reply)) return reply.toString('latin1');
  if (reply instanceof Error) return `error:${reply.message}`;
  return Array.isArray(reply) ? reply.map(plain) : reply;
}

const client = new Redis({ host, port: Number(port), connectionName: 'conformance', retryStrategy: null });
client.on('error', (error) => { console.error(error); process.exit(1); });
for await (const line of createInterface({ input: process.stdin })) {
  const [command, ...rest] = JSON.parse(line);
  let answer;
  try {
    answer = { reply: plain(await client.callBuffer(command, ...rest.map((w) => Buffer.from(w, 'latin1')))) };
  } catch (error) {
    answer = { error: error.message };
  }
  console.log(JSON.stringify(answer));
}
await client.quit();
