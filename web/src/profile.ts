// How long each dispatch of a run took on the GPU, from timestamps. In: a plan and its bind groups. Out: nanoseconds.
// Invariant: a run that is measured computes the same, but every dispatch has a pass of its own.

import { type Gpu, USAGE } from './device.js';
import type { Groups, Plan } from './plan.js';

/** A dispatch of a run; `start` and `end` are nanoseconds of the GPU's clock. */
export interface TimedDispatch {
  readonly number: number;
  readonly start: number;
  readonly end: number;
}

/** Queries of one set; WebGPU allows 4,096. */
const MOST = 4096;

export class Profiled {
  readonly #sets: GPUQuerySet[] = [];
  readonly #buffer: GPUBuffer;

  private constructor(
    private readonly gpu: Gpu,
    private readonly steps: number,
  ) {
    for (let left = 2 * steps; left > 0; left -= MOST) {
      this.#sets.push(gpu.device.createQuerySet({ type: 'timestamp', count: Math.min(left, MOST) }));
    }
    this.#buffer = gpu.buffer(16 * steps, USAGE.QUERY_RESOLVE | USAGE.COPY_SRC, 'timestamps');
  }

  /** Undefined where the device has no timestamps, or nothing runs. */
  static on(gpu: Gpu, steps: number): Profiled | undefined {
    return gpu.features.has('timestamp-query') && steps > 0 ? new Profiled(gpu, steps) : undefined;
  }

  encode(encoder: GPUCommandEncoder, steps: Plan['steps'], groups: Groups): void {
    steps.forEach(({ pipeline, grid }, k) => {
      const first = (2 * k) % MOST;
      const querySet = this.#sets[Math.floor((2 * k) / MOST)]!;
      const pass = encoder.beginComputePass({
        timestampWrites: { querySet, beginningOfPassWriteIndex: first, endOfPassWriteIndex: first + 1 },
      });
      pass.setPipeline(pipeline);
      pass.setBindGroup(0, groups[k]!);
      pass.dispatchWorkgroups(...grid);
      pass.end();
    });
    this.#sets.forEach((set, k) => encoder.resolveQuerySet(set, 0, set.count, this.#buffer, 8 * k * MOST));
  }

  async read(plan: Plan): Promise<TimedDispatch[]> {
    try {
      const times = new BigUint64Array(await this.gpu.read(this.#buffer, 16 * this.steps));
      return plan.steps.map(({ dispatch }, k) => ({
        number: dispatch,
        start: Number(times[2 * k]),
        end: Number(times[2 * k + 1]),
      }));
    } finally {
      this.release();
    }
  }

  /** Frees what it holds; twice is harmless. */
  release(): void {
    this.gpu.free(this.#buffer);
    for (const set of this.#sets) set.destroy();
  }
}
