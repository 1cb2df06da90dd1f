/* A program without Python that uses the provider: host ORT_LIBRARY PROVIDER_LIBRARY MODEL [unregister]
   The model is y = x * x for f32 [N, 8]. Prints "ok" and ends with 0 when every run, also from 4 threads, is right. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef void *P;
static P *api;
static P session, memory;
/* A function of ONNX Runtime's table by its slot, because the Python package of ONNX Runtime has no headers; see csrc/ort_abi.py. */
#define CALL(slot, result, ...) ((result(*)(__VA_ARGS__))(uintptr_t)api[slot])

static void check(P status, const char *what) {
  if (status == NULL) return;
  printf("%s: %s\n", what, CALL(2, const char *, P)(status));
  exit(2);
}

static void run(int rows) {
  float x[64];
  for (int i = 0; i < rows * 8; i++) x[i] = (float)i / 4;
  int64_t dims[2] = {rows, 8};
  P value = NULL, result = NULL;
  float *y = NULL;
  const char *in = "x", *out = "y";
  check(CALL(49, P, P, P, size_t, int64_t *, size_t, int, P *)(memory, x, rows * 8 * sizeof(float), dims, 2, 1, &value), "tensor");
  check(CALL(9, P, P, P, const char **, P *, size_t, const char **, size_t, P *)(session, NULL, &in, &value, 1, &out, 1, &result), "run");
  check(CALL(51, P, P, P *)(result, (P *)&y), "data");
  for (int i = 0; i < rows * 8; i++)
    if (y[i] != x[i] * x[i]) {
      printf("y[%d] is %f\n", i, y[i]);
      exit(4);
    }
  CALL(96, void, P)(value);
  CALL(96, void, P)(result);
}

static P work(P first) {
  for (int i = 0; i < 50; i++) run(1 + ((int)(intptr_t)first + i) % 8);
  return NULL;
}

int main(int count, char **arguments) {
  setvbuf(stdout, NULL, _IONBF, 0);
  P library = dlopen(arguments[1], RTLD_NOW | RTLD_LOCAL);
  if (library == NULL) return puts(dlerror()), 1;
  P *base = ((P * (*)(void)) dlsym(library, "OrtGetApiBase"))();
  api = ((P * (*)(uint32_t)) base[0])(24);
  P env = NULL, options = NULL;
  check(CALL(3, P, int, const char *, P *)(3, "host", &env), "env");
  check(CALL(301, P, P, const char *, const char *)(env, "registration", arguments[2]), "register");
  P *devices = NULL;
  P ours = NULL;
  size_t found = 0;
  check(CALL(303, P, P, P **, size_t *)(env, &devices, &found), "devices");
  for (size_t i = 0; i < found && ours == NULL; i++)
    if (strcmp(CALL(312, const char *, P)(devices[i]), "WebGpuExecutionProvider") == 0) ours = devices[i];
  if (ours == NULL) return puts("no device"), 3;
  check(CALL(10, P, P *)(&options), "options");
  check(CALL(304, P, P, P, P *, size_t, P, P, size_t)(options, env, &ours, 1, NULL, NULL, 0), "provider");
  check(CALL(7, P, P, const char *, P, P *)(env, arguments[3], options, &session), "session");
  check(CALL(69, P, int, int, P *)(1, 0, &memory), "memory");
  run(2);
  pthread_t threads[4];
  for (intptr_t i = 0; i < 4; i++) pthread_create(&threads[i], NULL, work, (P)i);
  for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
  CALL(95, void, P)(session);
  CALL(100, void, P)(options);
  CALL(94, void, P)(memory);
  if (count > 4) check(CALL(302, P, P, const char *)(env, "registration"), "unregister");
  CALL(92, void, P)(env);
  puts("ok");
  return 0;
}
