// All errors for users. Each message names the object, the value and the remedy.

/** The base class of all errors of this package. */
export class WgpuError extends Error {
  // Literal, because minifying renames classes.
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

/** A tensor exceeds a limit of the device, or a program needs a feature that it lacks. Names them and the limit. */
export class LimitError extends WgpuError {
  override name = 'LimitError';
}

/** An exported program is missing, damaged, or of another format version. */
export class ProgramError extends WgpuError {
  override name = 'ProgramError';
}

/** The source is not an export, perhaps an ONNX model for other libraries. */
export class NotExportedError extends ProgramError {}

/** There is no usable adapter, the device is lost, or it refused a request. */
export class DeviceError extends WgpuError {
  override name = 'DeviceError';
}

/** Returns `error.message`, or any other thrown value as text. */
export function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
