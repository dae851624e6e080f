// One worker process: the no-op and the probe.
'use strict';

const dgram = require('node:dgram');
const { Worker } = require('bullmq');
const { QUEUE, connection, nowNs } = require('./common');

const answers = dgram.createSocket('udp4');

async function handle(job) {
  if (job.name !== 'probe') return;
  const startedNs = nowNs();
  const [sentNs, port] = job.data.payload.split(':');
  answers.send(String(startedNs - BigInt(sentNs)), Number(port), '127.0.0.1');
}

const worker = new Worker(QUEUE, handle, {
  connection,
  concurrency: Number(process.env.BENCH_CONCURRENCY),
  removeOnComplete: { count: 0 },
});

worker.on('error', (error) => console.error(error));
process.on('SIGTERM', async () => {
  await worker.close();
  process.exit(0);
});
