// How much this package holds on GPUs. Of what users see no declaration names a type of WebGPU, which TypeScript has from version 6 on.

export interface MemoryUse {
  readonly buffers: number;
  readonly bytes: number;
}

/** What is held now. */
export const held = { buffers: 0, bytes: 0 };

/** Buffers and bytes that this package holds on all devices; both are 0 when every session and tensor is released. */
export function memory(): MemoryUse {
  return { ...held };
}
