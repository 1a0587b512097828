// SPDX-License-Identifier: Apache-2.0
// Driver for node-redis, as run_conformance.py describes it.
import { createInterface } from 'node:readline';
import { createClient, RESP_TYPES } from 'redis';

const [host, port, protocol] = process.argv.slice(2);

function plain(reply) {
  if (Buffer.isBuffer(reply)) return reply.toString('latin1');
  if (reply instanceof Error) return `error:${reply.message}`;
  if (Array.isArray(reply)) return reply.map(plain);
  if (reply instanceof Map) return Object.fromEntries([...reply].map(([k, v]) => [plain(k), plain(v)]));
  if (reply !== null && typeof reply === 'object') {
    return Object.fromEntries(Object.entries(reply).map(([k, v]) => [k, plain(v)]));
  }
  return reply;
}

const client = createClient({
  RESP: Number(protocol), name: 'conformance', socket: { host, port: Number(port), reconnectStrategy: false },
});
client.on('error', (error) => { console.error(error); process.exit(1); });
await client.connect();
const typeMapping = {
  [RESP_TYPES.BLOB_STRING]: Buffer, [RESP_TYPES.SIMPLE_STRING]: Buffer, [RESP_TYPES.MAP]: Map,
};
for await (const line of createInterface({ input: process.stdin })) {
  const words = JSON.parse(line).map((word) => Buffer.from(word, 'latin1'));
  let answer;
  try {
    answer = { reply: plain(await client.sendCommand(words, { typeMapping })) };
  } catch (error) {
    answer = { error: error.message };
  }
  console.log(JSON.stringify(answer));
}
await client.close();
