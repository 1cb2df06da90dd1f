// What finds out why something failed, fetched once something did.

/** What an error is due to, as far as that can be found out; undefined where it cannot, as without a network. */
export async function reason(of: (why: typeof import('./why.js')) => Promise<string | undefined>): Promise<string | undefined> {
  return import('./why.js').then(of).catch(() => undefined);
}
