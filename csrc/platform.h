/* Operating-system calls of the native part, one function each: nothing else in csrc/ includes a system header.
   Linux and macOS use POSIX; Windows (10 or later) uses Win32. Paths are UTF-8. */
#ifndef ONNXRUNTIME_EP_WGPU_PLATFORM_H
#define ONNXRUNTIME_EP_WGPU_PLATFORM_H

#ifdef _WIN32
#define WIN32_LEAN_AND_MEAN
#include <windows.h>
#include <psapi.h>
#define PLATFORM_EXPORT __declspec(dllexport)
#define PLATFORM_POPEN _popen
#define PLATFORM_PCLOSE _pclose
/* cmd.exe takes the outermost quotes of a command line away. */
#define PLATFORM_QUOTED(command) "\"" command "\""
#define PLATFORM_SEPARATOR '\\'
#else
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dlfcn.h>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>
#define PLATFORM_EXPORT __attribute__((visibility("default")))
#define PLATFORM_POPEN popen
#define PLATFORM_PCLOSE pclose
#define PLATFORM_QUOTED(command) command
#define PLATFORM_SEPARATOR '/'
#endif
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if defined(__GNUC__)
#define PLATFORM_MAYBE_UNUSED __attribute__((unused))
#define PLATFORM_THREAD_LOCAL __thread
#else
#define PLATFORM_MAYBE_UNUSED
#define PLATFORM_THREAD_LOCAL __declspec(thread)
#endif

#ifdef _MSC_VER
#define PLATFORM_STATIC_ASSERT static_assert /* which it knows in any C, and _Static_assert only in C11 */
#else
#define PLATFORM_STATIC_ASSERT _Static_assert
#endif

/* Address space without memory behind it: reading or writing it faults. NULL when the system refuses. */
PLATFORM_MAYBE_UNUSED static void *platform_reserve(size_t bytes) {
#ifdef _WIN32
  return VirtualAlloc(NULL, bytes, MEM_RESERVE, PAGE_NOACCESS);
#else
#ifndef MAP_NORESERVE
#define MAP_NORESERVE 0
#endif
  void *start = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return start == MAP_FAILED ? NULL : start;
#endif
}

/* Path of the library that holds `address`; 0 when it is unknown or longer than `size`. */
PLATFORM_MAYBE_UNUSED static int platform_library_path(const void *address, char *out, size_t size) {
#ifdef _WIN32
  HMODULE module = NULL;
  wchar_t wide[4096];
  DWORD flags = GET_MODULE_HANDLE_EX_FLAG_FROM_ADDRESS | GET_MODULE_HANDLE_EX_FLAG_UNCHANGED_REFCOUNT;
  if (!GetModuleHandleExW(flags, (LPCWSTR)address, &module)) return 0;
  DWORD length = GetModuleFileNameW(module, wide, 4096);
  if (length == 0 || length >= 4096) return 0;
  return WideCharToMultiByte(CP_UTF8, 0, wide, -1, out, (int)size, NULL, NULL) > 0;
#else
  Dl_info info;
  char resolved[4096];
  if (!dladdr(address, &info) || info.dli_fname == NULL) return 0;
  const char *path = realpath(info.dli_fname, resolved) != NULL ? resolved : info.dli_fname;
  if (strlen(path) >= size) return 0;
  strcpy(out, path);
  return 1;
#endif
}

/* Keeps the library that holds `address` loaded until the process ends, whoever unloads it. */
PLATFORM_MAYBE_UNUSED static void platform_pin_library(const void *address) {
#ifdef _WIN32
  HMODULE module;
  GetModuleHandleExW(GET_MODULE_HANDLE_EX_FLAG_FROM_ADDRESS | GET_MODULE_HANDLE_EX_FLAG_PIN, (LPCWSTR)address, &module);
#else
  Dl_info info;
  if (dladdr(address, &info) && info.dli_fname != NULL) dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD | RTLD_NODELETE);
#endif
}

/* A function that some library of this process exports; NULL when none does. */
PLATFORM_MAYBE_UNUSED static void *platform_symbol(const char *name) {
#ifdef _WIN32
  HMODULE modules[1024];
  DWORD needed = 0;
  if (!EnumProcessModules(GetCurrentProcess(), modules, sizeof modules, &needed)) return NULL;
  DWORD count = needed / sizeof(HMODULE) < 1024 ? needed / sizeof(HMODULE) : 1024;
  for (DWORD i = 0; i < count; i++) {
    void *found = (void *)(uintptr_t)GetProcAddress(modules[i], name);
    if (found != NULL) return found;
  }
  return NULL;
#else
  return dlsym(RTLD_DEFAULT, name);
#endif
}

/* Loads a library whose symbols every later library may use; 0 with `problem` filled when it cannot be loaded. */
PLATFORM_MAYBE_UNUSED static int platform_load_global(const char *path, char *problem, size_t size) {
#ifdef _WIN32
  wchar_t wide[4096];
  if (MultiByteToWideChar(CP_UTF8, 0, path, -1, wide, 4096) > 0 && LoadLibraryW(wide) != NULL) return 1;
  snprintf(problem, size, "cannot load %s (error %lu)", path, (unsigned long)GetLastError());
  return 0;
#else
  if (dlopen(path, RTLD_NOW | RTLD_GLOBAL) != NULL) return 1;
  const char *reason = dlerror();
  snprintf(problem, size, "%s", reason != NULL ? reason : path);
  return 0;
#endif
}

/* Where the Python executable lies below the root of an installation or a virtual environment. */
PLATFORM_MAYBE_UNUSED static const char *const platform_python_places[] = {
#ifdef _WIN32
    "Scripts\\python.exe", "python.exe",
#else
    "bin/python3", "bin/python",
#endif
    NULL};

PLATFORM_MAYBE_UNUSED static int platform_file_exists(const char *path) {
  FILE *file = fopen(path, "rb");
  if (file != NULL) fclose(file);
  return file != NULL;
}

/* One lock for the whole process. */
#ifdef _WIN32
PLATFORM_MAYBE_UNUSED static SRWLOCK platform_mutex = SRWLOCK_INIT;
PLATFORM_MAYBE_UNUSED static void platform_lock(void) { AcquireSRWLockExclusive(&platform_mutex); }
PLATFORM_MAYBE_UNUSED static void platform_unlock(void) { ReleaseSRWLockExclusive(&platform_mutex); }
#else
PLATFORM_MAYBE_UNUSED static pthread_mutex_t platform_mutex = PTHREAD_MUTEX_INITIALIZER;
PLATFORM_MAYBE_UNUSED static void platform_lock(void) { pthread_mutex_lock(&platform_mutex); }
PLATFORM_MAYBE_UNUSED static void platform_unlock(void) { pthread_mutex_unlock(&platform_mutex); }
#endif

/* Locks of which there are many. */
#ifdef _WIN32
typedef SRWLOCK platform_lock_t;
#define PLATFORM_LOCK_INIT SRWLOCK_INIT
PLATFORM_MAYBE_UNUSED static void platform_lock_begin(platform_lock_t *lock) { InitializeSRWLock(lock); }
PLATFORM_MAYBE_UNUSED static void platform_lock_end(platform_lock_t *lock) { (void)lock; }
PLATFORM_MAYBE_UNUSED static void platform_take(platform_lock_t *lock) { AcquireSRWLockExclusive(lock); }
PLATFORM_MAYBE_UNUSED static void platform_give(platform_lock_t *lock) { ReleaseSRWLockExclusive(lock); }
#else
typedef pthread_mutex_t platform_lock_t;
#define PLATFORM_LOCK_INIT PTHREAD_MUTEX_INITIALIZER
PLATFORM_MAYBE_UNUSED static void platform_lock_begin(platform_lock_t *lock) { pthread_mutex_init(lock, NULL); }
PLATFORM_MAYBE_UNUSED static void platform_lock_end(platform_lock_t *lock) { pthread_mutex_destroy(lock); }
PLATFORM_MAYBE_UNUSED static void platform_take(platform_lock_t *lock) { pthread_mutex_lock(lock); }
PLATFORM_MAYBE_UNUSED static void platform_give(platform_lock_t *lock) { pthread_mutex_unlock(lock); }
#endif

/* Threads that are waited for. What they run gives nothing. */
#ifdef _WIN32
typedef HANDLE platform_thread_t;
typedef DWORD platform_thread_result_t;
#define PLATFORM_THREAD_CALL WINAPI
#else
typedef pthread_t platform_thread_t;
typedef void *platform_thread_result_t;
#define PLATFORM_THREAD_CALL
#endif
typedef platform_thread_result_t(PLATFORM_THREAD_CALL *platform_thread_function_t)(void *);
PLATFORM_MAYBE_UNUSED static int platform_thread_begin(platform_thread_t *thread, platform_thread_function_t function, void *argument) {
#ifdef _WIN32
  *thread = CreateThread(NULL, 0, function, argument, 0, NULL);
  return *thread != NULL;
#else
  return pthread_create(thread, NULL, function, argument) == 0;
#endif
}
PLATFORM_MAYBE_UNUSED static void platform_thread_end(platform_thread_t thread) {
#ifdef _WIN32
  WaitForSingleObject(thread, INFINITE);
  CloseHandle(thread);
#else
  pthread_join(thread, NULL);
#endif
}

/* Numbers that several threads change; all threads see all changes in one order. */
#if defined(__GNUC__)
PLATFORM_MAYBE_UNUSED static int64_t platform_add(int64_t *number, int64_t more) {
  return __atomic_add_fetch(number, more, __ATOMIC_SEQ_CST);
}
PLATFORM_MAYBE_UNUSED static int64_t platform_read(const int64_t *number) { return __atomic_load_n(number, __ATOMIC_SEQ_CST); }
PLATFORM_MAYBE_UNUSED static void platform_write(int64_t *number, int64_t value) {
  __atomic_store_n(number, value, __ATOMIC_SEQ_CST);
}
PLATFORM_MAYBE_UNUSED static int64_t platform_exchange(int64_t *number, int64_t value) {
  return __atomic_exchange_n(number, value, __ATOMIC_SEQ_CST);
}
#else
PLATFORM_MAYBE_UNUSED static int64_t platform_add(int64_t *number, int64_t more) {
  return _InterlockedExchangeAdd64(number, more) + more;
}
PLATFORM_MAYBE_UNUSED static int64_t platform_read(const int64_t *number) {
  return _InterlockedOr64((volatile int64_t *)number, 0);
}
PLATFORM_MAYBE_UNUSED static void platform_write(int64_t *number, int64_t value) { _InterlockedExchange64(number, value); }
PLATFORM_MAYBE_UNUSED static int64_t platform_exchange(int64_t *number, int64_t value) {
  return _InterlockedExchange64(number, value);
}
#endif

#endif
