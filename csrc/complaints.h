/* How many errors WebGPU libraries have reported to each thread. They report one to the thread whose call they refuse, before it ends: so
 * who counts before a call and after it knows whether that was refused, whatever other threads do. Included by build_calls.py.
 */
static PLATFORM_THREAD_LOCAL uint64_t wgpu_reported;
static void wgpu_complain(void) { wgpu_reported++; }
static uint64_t wgpu_complaints(void) { return wgpu_reported; }
