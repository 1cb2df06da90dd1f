/* The number of errors that WebGPU libraries have reported to each thread. A library reports an error on the thread of the
 * refused call, before the call returns. So a caller that compares the number before and after a call detects a refusal,
 * regardless of other threads. Included after platform.h.
 */
static PLATFORM_THREAD_LOCAL uint64_t wgpu_reported;
PLATFORM_MAYBE_UNUSED static void wgpu_count_error(void) { wgpu_reported++; }
static uint64_t errors_of_thread(void) { return wgpu_reported; }
