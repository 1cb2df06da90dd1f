// Every error a user can meet. Each message names the thing, the value and the way out.

/** Base of all errors of this package. */
export class WgpuError extends Error {
  constructor(message: string, options?: ErrorOptions) {
    super(message, options);
    this.name = new.target.name;
  }
}

/** An option has an unknown name or a value outside its domain. */
export class OptionError extends WgpuError {}

/** An input has the wrong type, rank or shape, or two inputs disagree on a dimension. */
export class InputError extends WgpuError {}

/** A tensor is larger than the device allows; names tensor, bytes and limit. */
export class LimitError extends WgpuError {}

/** An exported program is missing, damaged, of another format version, or needs more than the device has. */
export class ProgramError extends WgpuError {}

/** There is no usable adapter, the device is lost, or it refused a request. */
export class DeviceError extends WgpuError {}

/** `error.message`, or whatever was thrown as text. */
export function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
