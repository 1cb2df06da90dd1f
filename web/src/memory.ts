// The memory of this package on GPUs. Public declarations name no type of WebGPU, because TypeScript has these only from
// version 6 on.

export interface MemoryUse {
  readonly buffers: number;
  readonly bytes: number;
}

/** The current use. */
export const held = { buffers: 0, bytes: 0 };

/** Returns the buffers and bytes of this package on all devices. Both are 0 after every session and tensor was released. */
export function memory(): MemoryUse {
  return { ...held };
}
