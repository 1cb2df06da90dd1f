// Measures the GPU time of each dispatch of a run, from timestamps. In: a plan and its bind groups. Out: nanoseconds, reported
// as by onnxruntime-web. Invariant: a measured run computes the same, but every dispatch has a pass of its own. Few pages
// measure, so this is a separate file. It imports nothing of the library.

import type { Gpu } from './device.js';
import type { Layout } from './layout.js';
import type { Groups, Plan } from './plan.js';
import type { Program } from './program.js';

export { timed } from './benchmark.js';
export { warm } from './warmup.js';

/** A dispatch of a run. `start` and `end` are nanoseconds of the GPU's clock. */
export interface TimedDispatch {
  readonly number: number;
  readonly start: number;
  readonly end: number;
}

/** Queries per set. WebGPU allows 4,096. */
const MOST = 4096;
const [COPY_SRC, QUERY_RESOLVE] = [4, 512]; // of GPUBufferUsage

/** Measures the dispatches of a run and receives their times. */
export interface OnProfile {
  /** Undefined if the device has no timestamps, or nothing runs. */
  on(gpu: Gpu, steps: number): Profiled | undefined;
  /** The same for a part of the run. */
  of(program: Program, feeds: readonly { readonly dims: readonly number[] }[]): OnProfile;
  tell(dispatches: TimedDispatch[], layout: Layout): void;
}

/** The fields of env.webgpu for measurements. */
interface Sink {
  readonly profiling?: { readonly ondata?: (data: never) => void };
}

/** Returns an object that measures a run of a program with these inputs, and reports to `sink`, or the console. */
export function profiling(program: Program, feeds: readonly { readonly dims: readonly number[] }[], sink: Sink): OnProfile {
  return {
    on: (gpu, steps) => Profiled.on(gpu, steps),
    of: (part, given) => profiling(part, given, sink),
    tell(dispatches, { shapes }) {
      const shown = (value: number): { dims: readonly number[]; dataType: string } => ({
        dims: program.inputs.includes(value) ? feeds[program.inputs.indexOf(value)]!.dims : [...shapes[value]!],
        dataType: program.values[value]!.dtype.name,
      });
      for (const { number, start, end } of dispatches) {
        const { kernel, args, origin, operators } = program.dispatches[number]!;
        const { label, bindings } = program.kernels[kernel]!;
        const of = (kind: string): ReturnType<typeof shown>[] => args.filter((_, k) => bindings[k] === kind).map(shown);
        const data = {
          version: 1 as const,
          inputsMetadata: of('read'),
          outputsMetadata: of('read_write'),
          kernelId: number,
          kernelType: operators.join('+'),
          kernelName: origin.join(', '),
          programName: label,
          startTime: start,
          endTime: end,
        };
        if (sink.profiling?.ondata) sink.profiling.ondata(data as never);
        else console.log(`[profiling] kernel "${number}|${data.kernelType}|${data.kernelName}|${label}" ${end - start} ns`);
      }
    },
  };
}

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
    this.#buffer = gpu.buffer(16 * steps, QUERY_RESOLVE | COPY_SRC, 'timestamps');
  }

  /** Undefined if the device has no timestamps, or nothing runs. */
  static on(gpu: Gpu, steps: number): Profiled | undefined {
    return gpu.features.has('timestamp-query') && steps > 0 ? new Profiled(gpu, steps) : undefined;
  }

  encode(encoder: GPUCommandEncoder, { steps, layout }: Plan, groups: Groups): void {
    steps.forEach(({ pipeline }, k) => {
      const first = (2 * k) % MOST;
      const querySet = this.#sets[Math.floor((2 * k) / MOST)]!;
      const pass = encoder.beginComputePass({
        timestampWrites: { querySet, beginningOfPassWriteIndex: first, endOfPassWriteIndex: first + 1 },
      });
      pass.setPipeline(pipeline);
      pass.setBindGroup(0, groups[k]!);
      pass.dispatchWorkgroups(...layout.steps[k]!.grid);
      pass.end();
    });
    this.#sets.forEach((set, k) => encoder.resolveQuerySet(set, 0, set.count, this.#buffer, 8 * k * MOST));
  }

  async read({ steps }: Layout): Promise<TimedDispatch[]> {
    try {
      const times = new BigUint64Array(await this.gpu.read(this.#buffer, 16 * this.steps));
      return steps.map(({ dispatch }, k) => ({
        number: dispatch,
        start: Number(times[2 * k]),
        end: Number(times[2 * k + 1]),
      }));
    } finally {
      this.release();
    }
  }

  /** Frees its buffers and query sets; a second call is harmless. */
  release(): void {
    this.gpu.free(this.#buffer);
    for (const set of this.#sets) set.destroy();
  }
}
