// Internals of this package for its tests.

export { Gpu, sharedGpu } from './device.js';
export { memory } from './memory.js';
export { Executable } from './executable.js';
export { dtype, nbytes } from './dtypes.js';
export { kernelOf, unitsOf } from './matrices.js';
export { flowOf, leaves } from './flow/format.js';
export { Stacked } from './flow/stacked.js';
export { generated } from './generate/loop.js';
export { Sampler } from './generate/sample.js';
export { Layouts, slotsOf } from './layout.js';
export { openPackage } from './package.js';
export { isSaved, openSaved } from './saved.js';
export { follow } from './grow.js';
export { defined, evaluate, mentioned, needed } from './postfix.js';
export { BASELINE, lack, parseExact, readExport, readProgram, targetOf } from './program.js';
