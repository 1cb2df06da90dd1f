// A file at an address: on the network, in the browser's cache, or on a disk.

/**
 * A file of known size in transfer. The received bytes are kept when a transfer is interrupted, and the next one continues
 * from there.
 */
export interface Part {
  /** The size of the file. */
  readonly size: number;
  /** The received bytes, with room for more. It grows as they arrive, because a damaged manifest may name any size. */
  whole?: Uint8Array;
  /** The number of received bytes. */
  end: number;
  readonly tell?: Tell | undefined;
}

/** Statuses that may change later. */
export const BUSY = /^(408|429|5)/;

/** Receives a number of received bytes. */
export type Tell = (bytes: number) => void;

/** A file that is not read yet. A response with an unread body holds only the network's buffers. */
export interface Found {
  readonly ok: boolean;
  /** The reason if it is not ok. */
  readonly status: string;
  /** Whether it comes from the cache. */
  readonly cached?: boolean;
  /**
   * Returns all bytes, or those of `part`. A longer array means that there were more. Of a response that does not start with the
   * text `begin` only the first bytes are received and returned.
   */
  bytes(part?: Part, begin?: string): Promise<Uint8Array>;
  /** Releases the unread rest. */
  cancel(): void;
}
