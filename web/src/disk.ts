// Files in Node. In: a path, or a `file:` URL. Out: the file, in the form of a network response.

import { messageOf } from './errors.js';
import type { Found } from './found.js';

interface Handle {
  stat(): Promise<{ size: number; isDirectory(): boolean }>;
  read(into: Uint8Array, offset: number, length: number): Promise<{ bytesRead: number }>;
  close(): Promise<void>;
}
interface Node {
  getBuiltinModule(name: 'node:fs/promises'): { open(path: string | URL): Promise<Handle> };
}

export async function onDisk(path: string | URL): Promise<Found> {
  // Through a function, so that bundlers for pages find no import of it.
  const { open } = (globalThis as unknown as { process: Node }).process.getBuiltinModule('node:fs/promises');
  const no = (status: string): Found => ({ ok: false, status, bytes: async () => new Uint8Array(), cancel: () => undefined });
  let file: Handle;
  try {
    file = await open(path);
  } catch (error) {
    return no(messageOf(error));
  }
  const found = await file.stat();
  if (found.isDirectory()) {
    await file.close();
    return no('it is a folder');
  }
  return {
    ok: true,
    status: '',
    bytes: async (part) => {
      try {
        return await read(file, part?.whole.length === found.size ? part.whole : new Uint8Array(found.size));
      } finally {
        await file.close();
      }
    },
    cancel: () => void file.close().catch(() => undefined),
  };
}

async function read(file: Handle, whole: Uint8Array): Promise<Uint8Array> {
  for (let end = 0; end < whole.length; ) {
    const { bytesRead } = await file.read(whole, end, whole.length - end);
    if (!bytesRead) return whole.slice(0, end);
    end += bytesRead;
  }
  return whole;
}
