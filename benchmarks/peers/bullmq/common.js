// What the producer and the worker agree on.
'use strict';

const { hostname, port } = new URL(process.env.BENCH_REDIS_URL);

module.exports = {
  QUEUE: 'bench',
  PAYLOAD: 'x'.repeat(100),
  connection: { host: hostname, port: Number(port), maxRetriesPerRequest: null },
  // Nanoseconds of the wall clock, the same clock as Python's time.time_ns().
  nowNs: () => BigInt(Math.round((performance.timeOrigin + performance.now()) * 1e6)),
};
