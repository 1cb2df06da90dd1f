// The compiled form of a graph as types, as Python's `program.py` has it. `program` reads it, `reading` looks at it.

import type { DType } from './dtypes.js';
import type { Postfix } from './postfix.js';

/** The owner of a value's memory: the caller (read, written), the session (weights, and what runs leave to runs), a plan. */
export type Storage = 'INPUT' | 'OUTPUT' | 'WEIGHT' | 'TEMP' | 'HOST' | 'STATE';

/** A product that a subgroup makes together: m, n, k, the types of operands and sums, the invocations of the subgroup. */
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
  /** Made for an adapter that calculates on the CPU. It runs everywhere, slower than others on a GPU. */
  readonly software: boolean;
  readonly matrices: readonly MatrixUnit[];
}

/**
 * A tensor. `weight` indexes the weights; `elements` are the numbers that a HOST value holds, row-major, or that a STATE begins
 * with, which is random bits where there are none.
 */
export interface Value {
  readonly name: string;
  readonly dtype: DType;
  readonly shape: readonly Postfix[];
  readonly storage: Storage;
  readonly weight: number;
  readonly elements: readonly Postfix[];
}

/** WGSL texts, one per variant, with the same bindings; a block of `uniforms` u32 follows them when it is not 0. */
export interface Kernel {
  readonly label: string;
  readonly wgsl: readonly string[];
  readonly bindings: readonly ('read' | 'read_write')[];
  readonly uniforms: number;
}

/** The first byte and the number of bytes that are bound of a tensor; null for all of it. */
export type BindingRange<Number> = readonly [Number, Number] | null;

/**
 * One use of a kernel: the first variant whose guard is not 0 runs, `repeats` times, with REPETITION counted from 0.
 * `ranges` has an entry for each of `args`, or none at all where all are bound whole.
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

/** `condition` must not be 0; else `text` says what is wrong, with a place `{}` for each of `dims`. */
export interface Check {
  readonly condition: Postfix;
  readonly text: string;
  readonly dims: readonly Postfix[];
  readonly limit: boolean;
}

/**
 * A weight: bytes from `offset` on of what follows the Program, or of the chunks beside it. With `matrices`, the rows, columns and
 * bits of elements of matrices that follow each other there, the weight is each of them transposed.
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
  /** An output that begins as an input, where both have one shape; by value number. */
  readonly aliases: readonly (readonly [output: number, input: number])[];
  readonly weights: readonly Weight[];
  /** Of an export: what else its header has, which was not looked at, and the programs that it names. */
  readonly header?: Readonly<Record<string, unknown>>;
  readonly named?: (number: number) => Program;
}
