// Finds the reason of a failure. Fetched after one.

/** Returns the reason of an error if it can be found; undefined otherwise, for example without a network. */
export async function reason(of: (why: typeof import('./why.js')) => Promise<string | undefined>): Promise<string | undefined> {
  return import('./why.js').then(of).catch(() => undefined);
}
