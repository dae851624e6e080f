// Enqueue; see benchmarks/peers/programs.py for the three modes and the answer.
'use strict';

const dgram = require('node:dgram');
const { once } = require('node:events');
const { setTimeout: sleep } = require('node:timers/promises');
const { Queue } = require('bullmq');
const { QUEUE, PAYLOAD, connection, nowNs } = require('./common');

const BATCH = 250;
const AT_ONCE = 4;
const WARM_UP = 3;

const queue = new Queue(QUEUE, { connection, defaultJobOptions: { removeOnComplete: true } });

// Several calls under way: Redis works on one while the next is made. Larger batches are slower.
async function bulk(count) {
  let next = 0;
  async function some() {
    while (next < count) {
      const size = Math.min(BATCH, count - next);
      next += size;
      await queue.addBulk(Array.from({ length: size }, () => ({ name: 'noop', data: { payload: PAYLOAD } })));
    }
  }
  await Promise.all(Array.from({ length: AT_ONCE }, some));
}

async function single(count) {
  for (let i = 0; i < count; i++) await queue.add('noop', { payload: PAYLOAD });
}

async function latency(count, seconds) {
  const answers = dgram.createSocket('udp4');
  answers.bind(0, '127.0.0.1');
  await once(answers, 'listening');
  const { port } = answers.address();
  const until = Date.now() + seconds * 1000;
  const taken = [];
  while (taken.length < WARM_UP + 1 || (taken.length < WARM_UP + count && Date.now() < until)) {
    const answered = once(answers, 'message');
    await queue.add('probe', { payload: `${nowNs()}:${port}:`.padEnd(PAYLOAD.length, 'x') });
    const [message] = await answered;
    taken.push(Number(message.toString()));
    // The same pause as in programs.py, where it is explained.
    await sleep(20 + 80 * Math.random() + (Math.random() * Math.max(0, ...taken.slice(WARM_UP))) / 1e6);
  }
  answers.close();
  return { latencies_ns: taken.slice(WARM_UP) };
}

async function main() {
  const [mode, count, seconds] = process.argv.slice(2);
  await queue.waitUntilReady();
  let figures;
  if (mode === 'latency') {
    figures = await latency(Number(count), Number(seconds));
  } else {
    const started = performance.now();
    await (mode === 'bulk' ? bulk : single)(Number(count));
    figures = { count: Number(count), seconds: (performance.now() - started) / 1000 };
  }
  console.log(JSON.stringify(figures));
  await queue.close();
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
