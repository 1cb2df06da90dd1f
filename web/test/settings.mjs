// What tests/web/node.py gives: how long a test waits for what does not come, and whether all is tried or one of each kind.

/** Milliseconds, of tests/patience.py; 0 is no limit. */
export const PATIENCE = 1000 * Number(process.env.WGPU_WEB_PATIENCE ?? 0);

/** `make test-all`. */
export const EVERYTHING = Boolean(process.env.WGPU_WEB_EVERYTHING);

/** Options of a test that only `make test-all` runs. */
export const exhaustive = { skip: !EVERYTHING && 'only in make test-all' };
