// The compiled form of a graph as types, as in Python's `program.py`. `program` reads it, `reading` checks it.

import type { DType } from './dtypes.js';
import type { Postfix } from './postfix.js';

/** The owner of a value's memory: the caller (read, written), the session (weights and states), or a plan. */
export type Storage = 'INPUT' | 'OUTPUT' | 'WEIGHT' | 'TEMP' | 'HOST' | 'STATE';

/** A product that a subgroup computes together: m, n, k, the types of operands and sums, the invocations of the subgroup. */
export type MatrixUnit = readonly [number, number, number, string, string, number];

export interface Target {
  readonly name: string;
  readonly features: readonly string[];
  readonly max_storage_buffers: number;
  readonly max_invocations: number;
  readonly max_workgroup_storage: number;
  readonly max_binding_bytes: number;
  readonly max_buffer_bytes: number;
  readonly offset_alignment: number;
  /** Made for an adapter that runs on the CPU. Runs everywhere, but slower than others on a GPU. */
  readonly software: boolean;
  readonly matrices: readonly MatrixUnit[];
}

/**
 * A tensor. `weight` indexes the weights. `elements` are the numbers of a HOST value, row-major, or the initial numbers of a
 * STATE. A STATE without them begins with random bits.
 */
export interface Value {
  readonly name: string;
  readonly dtype: DType;
  readonly shape: readonly Postfix[];
  readonly storage: Storage;
  readonly weight: number;
  readonly elements: readonly Postfix[];
}

/** WGSL texts, one per variant, with the same bindings. A block of `uniforms` u32 follows them if it is not 0. */
export interface Kernel {
  readonly label: string;
  readonly wgsl: readonly string[];
  readonly bindings: readonly ('read' | 'read_write')[];
  readonly uniforms: number;
}

/** The first byte and the number of bytes that are bound of a tensor; null for all of it. */
export type BindingRange<Number> = readonly [Number, Number] | null;

/**
 * One use of a kernel. The first variant with a guard that is not 0 runs `repeats` times, numbered from 0 by REPETITION.
 * `ranges` has an entry for each of `args`, or none if all are bound whole.
 */
export interface Dispatch {
  readonly kernel: number;
  readonly args: readonly number[];
  readonly uniforms: readonly Postfix[];
  readonly guards: readonly Postfix[];
  readonly workgroups: readonly Postfix[];
  readonly origin: readonly string[];
  readonly operators: readonly string[];
  readonly repeats: Postfix;
  readonly ranges: readonly BindingRange<Postfix>[];
}

/** The extent of an input's axis, or with `isElement` an element of a small integer input. */
export interface Symbol {
  readonly name: string;
  readonly input: number;
  readonly index: number;
  readonly isElement: boolean;
}

/** `condition` must not be 0. Otherwise `text` describes the fault, with a placeholder `{}` for each of `dims`. */
export interface Check {
  readonly condition: Postfix;
  readonly text: string;
  readonly dims: readonly Postfix[];
  readonly limit: boolean;
}

/**
 * A weight: `bytes` bytes from `offset` on, in the data after the Program or in the chunks. `matrices` are the rows, columns
 * and bits per element of consecutive matrices there; the weight is then each of them transposed.
 */
export interface Weight {
  readonly name: string;
  readonly offset: number;
  readonly bytes: number;
  readonly matrices?: readonly number[] | 0;
}

export type Definition = readonly [string, Postfix];

export interface Program {
  readonly name: string;
  readonly target: Target;
  readonly symbols: readonly Symbol[];
  readonly definitions: readonly Definition[];
  readonly messageDefinitions: readonly Definition[];
  readonly inputs: readonly number[];
  readonly outputs: readonly number[];
  readonly values: readonly Value[];
  readonly kernels: readonly Kernel[];
  readonly dispatches: readonly Dispatch[];
  readonly checks: readonly Check[];
  /** Outputs that begin as an input, if both have one shape; by value number. */
  readonly aliases: readonly (readonly [output: number, input: number])[];
  readonly weights: readonly Weight[];
  /** For exports: the rest of the header, unchecked, and the programs that it names. */
  readonly header?: Readonly<Record<string, unknown>>;
  readonly named?: (number: number) => Program;
}
