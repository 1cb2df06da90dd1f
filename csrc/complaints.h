/* How many errors WebGPU libraries have reported to each thread. They report one to the thread whose call they refuse, before it ends: so
 * a caller that counts before a call and after it can tell whether that was refused, whatever other threads do. Included behind platform.h.
 */
static PLATFORM_THREAD_LOCAL uint64_t wgpu_reported;
PLATFORM_MAYBE_UNUSED static void wgpu_complain(void) { wgpu_reported++; }
static uint64_t complaints_of_thread(void) { return wgpu_reported; }
