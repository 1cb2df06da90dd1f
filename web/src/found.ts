// What lies at an address, wherever that is: in the network, in the browser's cache, or on a disk.

/** A file of known size on its way: what arrived stays when the way ends, and another one goes on from there. */
export interface Part {
  readonly whole: Uint8Array;
  /** Bytes that are there. */
  end: number;
  readonly tell?: Tell | undefined;
}

/** Told how many bytes of something are there. */
export type Tell = (bytes: number) => void;

/** It is not read yet: a response whose body waits holds no more than the network's buffers. */
export interface Found {
  readonly ok: boolean;
  /** Why not, where it is not. */
  readonly status: string;
  /** It comes from the cache. */
  readonly cached?: boolean;
  /** All bytes, or those of `part` and a sign of more: then the array is longer. */
  bytes(part?: Part): Promise<Uint8Array>;
  /** Lets go of what was not read. */
  cancel(): void;
}
