// Every error a user can meet. Each message names the thing, the value and the way out.

/** Base of all errors of this package. */
export class WgpuError extends Error {
  // Written out, because minifying renames classes.
  override name = 'WgpuError';
}

/** An option has an unknown name or a value outside its domain. */
export class OptionError extends WgpuError {
  override name = 'OptionError';
}

/** An input has the wrong type, rank or shape, or two inputs disagree on a dimension. */
export class InputError extends WgpuError {
  override name = 'InputError';
}

/** A tensor is larger than the device allows, or a program needs what it lacks; names them and the limit. */
export class LimitError extends WgpuError {
  override name = 'LimitError';
}

/** An exported program is missing, damaged, or of another format version. */
export class ProgramError extends WgpuError {
  override name = 'ProgramError';
}

/** What was opened is no export, perhaps an ONNX model that other libraries run; `model` are its bytes. */
export class NotExportedError extends ProgramError {
  constructor(message: string, readonly model?: Uint8Array, options?: ErrorOptions) {
    super(message, options);
  }
}

/** There is no usable adapter, the device is lost, or it refused a request. */
export class DeviceError extends WgpuError {
  override name = 'DeviceError';
}

/** `error.message`, or whatever was thrown as text. */
export function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
