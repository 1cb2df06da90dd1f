/* The library that ONNX Runtime loads. It has no logic: it finds a Python interpreter, imports the provider once and forwards
   the two entry points. It needs no Python header and links no libpython.

   Inside Python it uses the running interpreter. In any other program (C, C++, C#...) it first starts libpython, with the
   executable of the environment that contains this file, or the one in ONNXRUNTIME_EP_WGPU_PYTHON. Invariant: a failure becomes
   an OrtStatus that describes what was tried. Nothing is printed and nothing aborts. */
#include "platform.h"

typedef void *(*CreateFactories)(const char *, const void *, const void *, void **, size_t, size_t *);
typedef void *(*ReleaseFactory)(void *);

static CreateFactories create_factories;
static ReleaseFactory release_factory;
static const char anchor;

#define MODULE "onnxruntime_ep_wgpu.plugin.entry"
#define PATH_BYTES 4096
/* CreateStatus has always been the first entry of ONNX Runtime's table, and every later version still provides version 1. */
#define API_VERSION 1
#define CREATE_STATUS 0
#define RUNTIME_EXCEPTION 6

#define FIND(result, name, ...) \
  result (*name)(__VA_ARGS__) = (result (*)(__VA_ARGS__))(uintptr_t)platform_symbol(#name)

/* Takes the pending Python exception and formats it as "Type: text". */
static void describe_exception(char *problem, size_t size) {
  FIND(void, PyErr_Fetch, void **, void **, void **);
  FIND(void, PyErr_NormalizeException, void **, void **, void **);
  FIND(void *, PyObject_Repr, void *);
  FIND(void *, PyUnicode_AsUTF8String, void *);
  FIND(char *, PyBytes_AsString, void *);
  FIND(void, PyErr_Clear, void);
  void *type = NULL, *value = NULL, *trace = NULL, *text = NULL, *bytes = NULL;
  PyErr_Fetch(&type, &value, &trace);
  PyErr_NormalizeException(&type, &value, &trace);
  if (value != NULL) text = PyObject_Repr(value);
  if (text != NULL) bytes = PyUnicode_AsUTF8String(text);
  snprintf(problem, size, "importing " MODULE " failed: %s", bytes != NULL ? PyBytes_AsString(bytes) : "unknown reason");
  PyErr_Clear();
}

/* Runs `executable` once to find its libpython. Returns 0 if it cannot be run or has none. */
static int ask_for_libpython(const char *executable, char *library, size_t size) {
  const char *script =
      "import os, sys, sysconfig as s; v = s.get_config_var; n = [v('INSTSONAME'), v('LDLIBRARY')]; "
      "d = [v('LIBDIR'), os.path.join(sys.base_prefix, 'lib'), v('LIBPL')]; "
      "w = os.path.join(sys.base_prefix, 'python' + ''.join(map(str, sys.version_info[:2])) + '.dll'); "
      "f = v('PYTHONFRAMEWORKPREFIX'); "
      "c = [w] + [os.path.join(f, x) for x in n if f and x] + [os.path.join(p, x) for p in d for x in n if p and x]; "
      "found = next((x for x in c if os.path.isfile(x) and not x.endswith('.a')), ''); "
      "sys.stdout.buffer.write(os.fsencode(found))"; /* UTF-8 on Windows, elsewhere the bytes of the file system */
  const char *const arguments[] = {executable, "-I", "-S", "-c", script, NULL};
  return platform_output(arguments, library, size);
}

/* Finds the Python executable of the environment that contains this library: the nearest one in a parent folder. */
static int find_executable(char *executable, size_t size) {
  size_t length = platform_environment("ONNXRUNTIME_EP_WGPU_PYTHON", executable, size);
  if (length > 0) return length < size;
  char folder[PATH_BYTES];
  if (!platform_library_path(&anchor, folder, sizeof folder)) return 0;
  for (char *end = strrchr(folder, PLATFORM_SEPARATOR); end != NULL; end = strrchr(folder, PLATFORM_SEPARATOR)) {
    *end = 0;
    for (const char *const *place = platform_python_places; *place != NULL; place++) {
      if (snprintf(executable, size, "%s%c%s", folder, PLATFORM_SEPARATOR, *place) < (int)size && platform_file_exists(executable))
        return 1;
    }
  }
  return 0;
}

/* Starts an interpreter in a program without one, and releases its lock. */
static int start_python(char *problem, size_t size) {
  char executable[PATH_BYTES], library[PATH_BYTES];
  if (!find_executable(executable, sizeof executable)) {
    snprintf(problem, size, "no Python found in the folders above this library; set ONNXRUNTIME_EP_WGPU_PYTHON to its executable");
    return 0;
  }
  if (platform_symbol("Py_IsInitialized") == NULL) {
    if (!ask_for_libpython(executable, library, sizeof library)) {
      const char *text = platform_file_exists(executable)
                             ? "%s has no shared libpython (install python3-dev or a Python built with --enable-shared)"
                             : "there is no %s; set ONNXRUNTIME_EP_WGPU_PYTHON to the Python executable of an environment";
      snprintf(problem, size, text, executable);
      return 0;
    }
    if (!platform_load_global(library, problem, size)) return 0;
  }
  FIND(void *, Py_DecodeLocale, const char *, size_t *);
  FIND(void, Py_SetProgramName, void *);
  FIND(void, Py_InitializeEx, int);
  FIND(void *, PyEval_SaveThread, void);
  FIND(void *, PyInitConfig_Create, void);
  if (PyInitConfig_Create != NULL) { /* 3.14 and later */
    FIND(int, PyInitConfig_SetStr, void *, const char *, const char *);
    FIND(int, PyInitConfig_SetInt, void *, const char *, int64_t);
    FIND(int, Py_InitializeFromInitConfig, void *);
    FIND(void, PyInitConfig_Free, void *);
    void *config = PyInitConfig_Create();
    int failed = config == NULL || PyInitConfig_SetStr(config, "program_name", executable) ||
                 PyInitConfig_SetInt(config, "install_signal_handlers", 0) || Py_InitializeFromInitConfig(config);
    if (config != NULL) PyInitConfig_Free(config);
    if (failed) {
      snprintf(problem, size, "the interpreter of %s did not start", executable);
      return 0;
    }
  } else {
    static wchar_t name[PATH_BYTES];
    if (Py_SetProgramName != NULL)
      Py_SetProgramName(platform_wide(executable, name, PATH_BYTES) ? (void *)name : Py_DecodeLocale(executable, NULL));
    Py_InitializeEx(0);
  }
  PyEval_SaveThread();
  return 1;
}

/* The most attempts to import after Ctrl-C interrupted the import. */
enum { IMPORTS = 8 };

/* Returns the provider's module; NULL with `problem` filled if the import fails. A KeyboardInterrupt is counted, because it
   must not become the text of an OrtStatus. */
static void *import_module(int *interrupts, char *problem, size_t size) {
  FIND(void *, PyImport_ImportModule, const char *);
  FIND(int, PyErr_ExceptionMatches, void *);
  FIND(void, PyErr_Clear, void);
  void **interrupt = (void **)platform_symbol("PyExc_KeyboardInterrupt");
  while (*interrupts < IMPORTS) {
    void *module = PyImport_ImportModule(MODULE);
    if (module != NULL) return module;
    if (interrupt == NULL || !PyErr_ExceptionMatches(*interrupt)) {
      describe_exception(problem, size);
      return NULL;
    }
    PyErr_Clear();
    ++*interrupts;
  }
  snprintf(problem, size, "importing " MODULE " failed: KeyboardInterrupt");
  return NULL;
}

/* Imports the provider and keeps its two entry points. Returns 0 and fills `problem` if that fails. */
static int import_provider(int *interrupts, char *problem, size_t size) {
  FIND(void *, PyObject_GetAttrString, void *, const char *);
  FIND(void *, PyLong_AsVoidPtr, void *);
  void *module = import_module(interrupts, problem, size);
  if (module == NULL) return 0;
  void *create = PyObject_GetAttrString(module, "CREATE_EP_FACTORIES");
  void *release = create != NULL ? PyObject_GetAttrString(module, "RELEASE_EP_FACTORY") : NULL;
  if (release == NULL) {
    describe_exception(problem, size);
    return 0;
  }
  release_factory = (ReleaseFactory)(uintptr_t)PyLong_AsVoidPtr(release);
  create_factories = (CreateFactories)(uintptr_t)PyLong_AsVoidPtr(create);
  return 1;
}

/* Starts Python if needed and imports the provider. Takes the interpreter's lock before ours, so that a thread that waits for
   our lock never holds the interpreter's. */
static int boot(char *problem, size_t size) {
  platform_lock();
  FIND(int, Py_IsInitialized, void);
  int in_python = Py_IsInitialized != NULL && Py_IsInitialized(), ready = in_python;
  if (!ready) ready = start_python(problem, size);
  platform_unlock();
  if (!ready) return 0;
  platform_pin_library(&anchor);
  FIND(int, PyGILState_Ensure, void);
  FIND(void, PyGILState_Release, int);
  int state = PyGILState_Ensure();
  FIND(void, PyErr_SetInterrupt, void);
  int interrupts = 0;
  int imported = import_provider(&interrupts, problem, size);
  if (interrupts > 0) PyErr_SetInterrupt(); /* raised when Python continues */
  PyGILState_Release(state);
  size_t length = strlen(problem);
  if (!imported && !in_python)
    snprintf(problem + length, size - length, "; ONNXRUNTIME_EP_WGPU_PYTHON names the Python of another environment");
  return imported;
}

PLATFORM_EXPORT void *CreateEpFactories(const char *name, const void *base, const void *logger, void **out, size_t capacity,
                                        size_t *out_count) {
  char problem[2 * PATH_BYTES] = "";
  if (create_factories != NULL || boot(problem, sizeof problem)) return create_factories(name, base, logger, out, capacity, out_count);
  const void *const *(*get_api)(uint32_t) = *(const void *const *(*const *)(uint32_t))base;
  const void *const *api = get_api(API_VERSION);
  void *(*create_status)(int, const char *) = (void *(*)(int, const char *))(uintptr_t)api[CREATE_STATUS];
  return create_status(RUNTIME_EXCEPTION, problem);
}

PLATFORM_EXPORT void *ReleaseEpFactory(void *factory) { return release_factory != NULL ? release_factory(factory) : NULL; }
