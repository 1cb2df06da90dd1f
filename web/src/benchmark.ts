// Measures the time of runs, as a page experiences it. Python has the same function.

import type { InferenceSession } from 'onnxruntime-common';

/** In milliseconds. */
export interface Times {
  readonly avg: number;
  readonly min: number;
  readonly max: number;
}

/** Returns milliseconds per run with results in memory, after one run that is not counted. */
export async function timed(session: InferenceSession, feeds: InferenceSession.FeedsType, iterations: number): Promise<Times> {
  if (!(Number.isInteger(iterations) && iterations > 0)) throw new RangeError(`iterations is ${iterations}, it takes a whole number from 1 on`);
  const times: number[] = [];
  for (let k = 0; k <= iterations; k++) {
    const start = performance.now();
    const results = await session.run(feeds);
    await Promise.all(Object.values(results).map((it) => it.getData()));
    if (k) times.push(performance.now() - start);
    for (const it of Object.values(results)) it.dispose();
  }
  const sum = times.reduce((a, b) => a + b, 0);
  return { avg: sum / times.length, min: Math.min(...times), max: Math.max(...times) };
}
