/* Operating-system calls of the native code, one function each. No other file in csrc/ includes a system header.
   Linux and macOS use POSIX; Windows (10 or later) uses Win32. Paths are UTF-8. */
#ifndef ONNXRUNTIME_EP_WGPU_PLATFORM_H
#define ONNXRUNTIME_EP_WGPU_PLATFORM_H

#ifdef _WIN32
#define WIN32_LEAN_AND_MEAN
#include <windows.h>
#include <psapi.h>
#define PLATFORM_EXPORT __declspec(dllexport)
#define PLATFORM_SEPARATOR '\\'
#else
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#ifdef __APPLE__
#include <crt_externs.h>
#define PLATFORM_ENVIRONMENT (*_NSGetEnviron())
#else
#define PLATFORM_ENVIRONMENT environ
#endif
#define PLATFORM_EXPORT __attribute__((visibility("default")))
#define PLATFORM_SEPARATOR '/'
#endif
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <wchar.h>

#if defined(__GNUC__)
#define PLATFORM_MAYBE_UNUSED __attribute__((unused))
#define PLATFORM_THREAD_LOCAL __thread
#else
#define PLATFORM_MAYBE_UNUSED
#define PLATFORM_THREAD_LOCAL __declspec(thread)
#endif

#ifdef _MSC_VER
#define PLATFORM_STATIC_ASSERT static_assert /* works in any C version, unlike _Static_assert, which needs C11 */
#else
#define PLATFORM_STATIC_ASSERT _Static_assert
#endif

/* Converts text for the wide functions of Windows. Returns 0 if it is longer than `size`, or on other systems. */
PLATFORM_MAYBE_UNUSED static int platform_wide(const char *text, wchar_t *out, int size) {
#ifdef _WIN32
  return MultiByteToWideChar(CP_UTF8, 0, text, -1, out, size) > 0;
#else
  (void)text, (void)out, (void)size;
  return 0;
#endif
}

/* Reads an environment variable and returns its length: 0 if it is empty or missing, `size` if it is too long. */
PLATFORM_MAYBE_UNUSED static size_t platform_environment(const char *name, char *out, size_t size) {
#ifdef _WIN32
  wchar_t wide[256], value[4096];
  if (!platform_wide(name, wide, 256)) return 0;
  DWORD length = GetEnvironmentVariableW(wide, value, 4096);
  if (length == 0) return 0;
  if (length >= 4096 || WideCharToMultiByte(CP_UTF8, 0, value, -1, out, (int)size, NULL, NULL) == 0) return size;
  return strlen(out);
#else
  const char *value = getenv(name);
  if (value == NULL) return 0;
  if (strlen(value) >= size) return size;
  return strlen(strcpy(out, value));
#endif
}

/* Reserves address space without memory. Reading or writing it faults. Returns NULL if the system refuses. */
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

/* Finds the path of the library that contains `address`. Returns 0 if it is unknown or longer than `size`. */
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

/* Keeps the library that contains `address` loaded until the process ends, even if it is unloaded. */
PLATFORM_MAYBE_UNUSED static void platform_pin_library(const void *address) {
#ifdef _WIN32
  HMODULE module;
  GetModuleHandleExW(GET_MODULE_HANDLE_EX_FLAG_FROM_ADDRESS | GET_MODULE_HANDLE_EX_FLAG_PIN, (LPCWSTR)address, &module);
#else
  Dl_info info;
  if (dladdr(address, &info) && info.dli_fname != NULL) dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD | RTLD_NODELETE);
#endif
}

/* Returns a function that a library of this process exports; NULL if there is none. */
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

/* Loads a library and makes its symbols available to later libraries. Returns 0 and fills `problem` if it cannot be loaded. */
PLATFORM_MAYBE_UNUSED static int platform_load_global(const char *path, char *problem, size_t size) {
#ifdef _WIN32
  wchar_t wide[4096];
  if (platform_wide(path, wide, 4096) && LoadLibraryW(wide) != NULL) return 1;
  snprintf(problem, size, "cannot load %s (error %lu)", path, (unsigned long)GetLastError());
  return 0;
#else
  if (dlopen(path, RTLD_NOW | RTLD_GLOBAL) != NULL) return 1;
  const char *reason = dlerror();
  snprintf(problem, size, "%s", reason != NULL ? reason : path);
  return 0;
#endif
}

/* The path of the Python executable below the root of an installation or a virtual environment. */
PLATFORM_MAYBE_UNUSED static const char *const platform_python_places[] = {
#ifdef _WIN32
    "Scripts\\python.exe", "python.exe",
#else
    "bin/python3", "bin/python",
#endif
    NULL};

PLATFORM_MAYBE_UNUSED static int platform_file_exists(const char *path) {
#ifdef _WIN32
  wchar_t wide[4096];
  return platform_wide(path, wide, 4096) && GetFileAttributesW(wide) != INVALID_FILE_ATTRIBUTES;
#else
  return access(path, F_OK) == 0;
#endif
}

/* Quotes an argument for the command line of a Windows program, for the program's runtime to parse. Returns the length; 0 if
   that is `size` or more. */
PLATFORM_MAYBE_UNUSED static size_t platform_quoted(const char *argument, char *out, size_t size) {
  const int quoted = argument[0] == 0 || strpbrk(argument, " \t") != NULL;
  size_t used = 0, slashes = 0;
  if (2 * strlen(argument) + 3 > size) return 0;
  if (quoted) out[used++] = '"';
  for (const char *at = argument; *at != 0; at++) {
    if (*at == '"') { /* the backslashes before it count twice, and it needs one */
      for (slashes++; slashes > 0; slashes--) out[used++] = '\\';
    }
    slashes = *at == '\\' ? slashes + 1 : 0;
    out[used++] = *at;
  }
  if (quoted) {
    for (; slashes > 0; slashes--) out[used++] = '\\';
    out[used++] = '"';
  }
  out[used] = 0;
  return used;
}

/* Runs a program and returns its standard output as text. Returns 0 if it cannot be run, fails, or writes `size` bytes or more.
   `arguments` end with NULL. The first is the program, which is looked up in PATH if it contains no separator. No shell is
   involved, so arguments with any characters arrive unchanged. */
PLATFORM_MAYBE_UNUSED static int platform_output(const char *const *arguments, char *out, size_t size) {
  size_t used = 0;
#ifdef _WIN32
  char line[16384];
  wchar_t wide[16384];
  size_t length = 0;
  if (strchr(arguments[0], '"') != NULL) return 0; /* no file name contains it, and it would end the name */
  for (const char *const *argument = arguments; *argument != NULL; argument++) {
    if (length > 0) line[length++] = ' ';
    size_t more = platform_quoted(*argument, line + length, sizeof line - 1 - length);
    if (more == 0) return 0;
    length += more;
  }
  if (!platform_wide(line, wide, 16384)) return 0;
  SECURITY_ATTRIBUTES inherited = {sizeof inherited, NULL, TRUE};
  HANDLE from, to;
  if (!CreatePipe(&from, &to, &inherited, 0)) return 0;
  SetHandleInformation(from, HANDLE_FLAG_INHERIT, 0);
  STARTUPINFOW start;
  PROCESS_INFORMATION child;
  ZeroMemory(&start, sizeof start);
  start.cb = sizeof start;
  start.dwFlags = STARTF_USESTDHANDLES;
  start.hStdOutput = to;
  start.hStdError = GetStdHandle(STD_ERROR_HANDLE);
  int began = CreateProcessW(NULL, wide, NULL, NULL, TRUE, CREATE_NO_WINDOW, NULL, NULL, &start, &child);
  CloseHandle(to);
  DWORD count = 0, code = 1;
  while (began && used < size && ReadFile(from, out + used, (DWORD)(size - used), &count, NULL) && count > 0) used += count;
  CloseHandle(from);
  if (!began) return 0;
  WaitForSingleObject(child.hProcess, INFINITE);
  if (!GetExitCodeProcess(child.hProcess, &code)) code = 1;
  CloseHandle(child.hProcess);
  CloseHandle(child.hThread);
  if (code != 0) return 0;
#else
  int ends[2], status = 0;
  ssize_t count;
  pid_t child, ended;
  posix_spawn_file_actions_t actions;
#ifdef __APPLE__
  if (pipe(ends)) return 0;
  fcntl(ends[0], F_SETFD, FD_CLOEXEC);
  fcntl(ends[1], F_SETFD, FD_CLOEXEC);
#else
  if (pipe2(ends, O_CLOEXEC)) return 0;
#endif
  int began = posix_spawn_file_actions_init(&actions) == 0;
  if (began) {
    began = posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO) == 0 &&
            posix_spawnp(&child, arguments[0], &actions, NULL, (char *const *)(uintptr_t)arguments, PLATFORM_ENVIRONMENT) == 0;
    posix_spawn_file_actions_destroy(&actions);
  }
  close(ends[1]);
  while (began && used < size && ((count = read(ends[0], out + used, size - used)) > 0 || (count < 0 && errno == EINTR)))
    used += count > 0 ? (size_t)count : 0;
  close(ends[0]);
  if (!began) return 0;
  do ended = waitpid(child, &status, 0);
  while (ended < 0 && errno == EINTR);
  if (ended == child && status != 0) return 0; /* hosts that ignore SIGCHLD, or wait for every child, leave no status */
#endif
  if (used == 0 || used >= size) return 0;
  out[used] = 0;
  return 1;
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

/* Other locks. */
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

/* Threads that are joined. Their functions return nothing. */
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

/* Atomic numbers. All threads see all changes in one order. */
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
