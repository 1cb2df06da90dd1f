#!/usr/bin/env node
// `npx onnxruntime-ep-wgpu-web export model.onnx`: the command `wgpu-ep` of the Python package, with these arguments.

import { MissingError, PACKAGE, VERSION, findExporter, runExporter } from './exporter.mjs';

/** As shells have it for a command that is not there. */
const NOT_FOUND = 127;

try {
  const exporter = findExporter();
  if (exporter.version !== VERSION) {
    console.error(`note: ${PACKAGE} is ${exporter.version} in ${exporter.place}, this package ${VERSION}: a page reads exports of its own version`);
  }
  const { code, signal } = await runExporter(exporter, process.argv.slice(2));
  if (signal) process.kill(process.pid, signal);
  else process.exitCode = code;
} catch (error) {
  if (!(error instanceof MissingError)) throw error;
  console.error(`error: ${error.message}`);
  process.exitCode = NOT_FOUND;
}
