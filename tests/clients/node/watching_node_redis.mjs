// SPDX-License-Identifier: Apache-2.0
// node-redis watches a lease: HOST PORT. It has no public way to hand out a push that it does not know,
// so what is shown is that pushes between its replies do not disturb it, and that LEASE.WAIT tells it.
import { createClient } from 'redis';

const [host, port] = process.argv.slice(2);
const connect = () => createClient({ RESP: 3, socket: { host, port: Number(port) } }).connect();

function expect(what, actual, wanted) {
  if (JSON.stringify(actual) === JSON.stringify(wanted)) return;
  console.log(`WRONG ${what}: expected ${JSON.stringify(wanted)}, got ${JSON.stringify(actual)}`);
  process.exitCode = 1;
}

const [watcher, worker] = [await connect(), await connect()];
expect('watching', await watcher.sendCommand(['LEASE.WATCH', 'job']), 'OK');
for (let round = 0; round < 100; ++round) {
  const owner = `owner-${round}`;
  const echo = watcher.sendCommand(['ECHO', owner]);
  const [token] = await worker.sendCommand(['LEASE.ACQUIRE', 'job', owner, '60000']);
  await worker.sendCommand(['LEASE.RELEASE', 'job', owner, token]);
  expect('a reply among pushes', await echo, owner);
}
expect('ending it', await watcher.sendCommand(['LEASE.UNWATCH']), 'OK');

const waited = watcher.sendCommand(['LEASE.WAIT', 'other', '0', '20000']);
const [token] = await worker.sendCommand(['LEASE.ACQUIRE', 'other', 'a', '60000']);
expect('waiting for a change', await waited, ['granted', 'other', token]);

await Promise.all([watcher.close(), worker.close()]);
console.log('done');
