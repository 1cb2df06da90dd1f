// What lies at an address, wherever that is: in the network, in the browser's cache, or on a disk.

/** It is not read yet: a response whose body waits holds no more than the network's buffers. */
export interface Found {
  readonly ok: boolean;
  /** Why not, where it is not. */
  readonly status: string;
  /** It comes from the cache. */
  readonly cached?: boolean;
  /** All bytes, or those up to `size` and a sign of more: then the array is longer. */
  bytes(size?: number): Promise<Uint8Array>;
  /** Lets go of what was not read. */
  cancel(): void;
}
