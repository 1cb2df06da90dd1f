// Files in Node. In: a path, or a `file:` URL. Out: the file, in the form of a network response.

import { ProgramError, messageOf } from './errors.js';
import type { Found } from './found.js';

interface Handle {
  read(into: Uint8Array, offset: number, length: number): Promise<{ bytesRead: number }>;
  close(): Promise<void>;
}
interface Node {
  getBuiltinModule(name: 'node:fs/promises'): {
    open(path: string | URL): Promise<Handle>;
    stat(path: string | URL): Promise<{ size: number; isFile(): boolean; isDirectory(): boolean }>;
  };
}

export async function onDisk(path: string | URL): Promise<Found> {
  // Through a function, so that bundlers for pages find no import of it.
  const { open, stat } = (globalThis as unknown as { process: Node }).process.getBuiltinModule('node:fs/promises');
  const no = (status: string): Found => ({ ok: false, status, bytes: async () => new Uint8Array(), cancel: () => undefined });
  let size: number;
  let file: Handle;
  try {
    // Opening a pipe would wait for its writer.
    const found = await stat(path);
    if (!found.isFile()) return no(found.isDirectory() ? 'it is a folder' : 'it is no regular file');
    size = found.size;
    file = await open(path);
  } catch (error) {
    return no(messageOf(error));
  }
  return {
    ok: true,
    status: '',
    bytes: async () => {
      try {
        return await read(file, new Uint8Array(size));
      } catch (error) {
        throw new ProgramError(`${path} cannot be read: ${messageOf(error)} (it has ${size} bytes)`, { cause: error });
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
