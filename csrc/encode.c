/* Records copies, dispatches and more copies into one WebGPU command buffer.
 *
 * In: the addresses of functions of a WebGPU library (which Python has loaded; nothing links to it), handles and numbers as
 * 64-bit words. Out: a finished command buffer.
 * Invariant: no Python here, so the interpreter lock is given up once for the whole list. From Python every call costs
 * 0.4 us and gives the lock up: 300 dispatches took 410 us, and far more while another thread calculated.
 */
#include "tickets.h"

/* Places in the table of a library's functions; device/encoding.py fills it in this order. */
enum {
  CREATE_ENCODER,
  COPY_BUFFER,
  BEGIN_PASS,
  SET_PIPELINE,
  SET_BIND_GROUP,
  DISPATCH,
  END_PASS,
  RELEASE_PASS,
  FINISH,
  RELEASE_ENCODER,
  WRITE_BUFFER,
  RELEASE_COMMANDS,
  MAP_ASYNC,
  MAPPED_RANGE,
  UNMAP,
};

/* Words per row: (source, offset, destination, offset, bytes) and (pipeline, bind group, x, y, z). */
enum { COPY_WORDS = 5, DISPATCH_WORDS = 5 };

typedef handle (*create_encoder)(handle device, const void *descriptor);
typedef void (*copy_buffer)(handle encoder, handle source, uint64_t source_offset, handle destination,
                            uint64_t destination_offset, uint64_t size);
typedef handle (*begin_pass)(handle encoder, const void *descriptor);
typedef void (*set_pipeline)(handle pass, handle pipeline);
typedef void (*set_bind_group)(handle pass, uint32_t index, handle group, size_t offset_count, const uint32_t *offsets);
typedef void (*dispatch)(handle pass, uint32_t x, uint32_t y, uint32_t z);
typedef void (*use)(handle object);
typedef handle (*finish_encoder)(handle encoder, const void *descriptor);

/* A command encoder, and the compute pass that is open in it, if any. */
typedef struct {
  const uint64_t *functions;
  handle encoder, pass;
} Encoder;

static Encoder begin_encoder(const uint64_t *functions, uint64_t device) {
  handle encoder = POINTER(create_encoder, functions[CREATE_ENCODER])(POINTER(handle, device), NULL);
  return (Encoder){functions, encoder, NULL};
}

static void end_pass(Encoder *to) {
  if (to->pass == NULL) return;
  POINTER(use, to->functions[END_PASS])(to->pass);
  POINTER(use, to->functions[RELEASE_PASS])(to->pass);
  to->pass = NULL;
}

/* Copies end an open pass: WebGPU has none within a pass. */
static void encode_copies(Encoder *to, const uint64_t *rows, size_t count) {
  copy_buffer copy = POINTER(copy_buffer, to->functions[COPY_BUFFER]);
  if (count) end_pass(to);
  for (size_t i = 0; i < count; i++) {
    const uint64_t *row = rows + i * COPY_WORDS;
    copy(to->encoder, POINTER(handle, row[0]), row[1], POINTER(handle, row[2]), row[3], row[4]);
  }
}

/* Dispatches go into the open pass, or a new one. */
static void encode_dispatches(Encoder *to, const uint64_t *rows, size_t count) {
  set_pipeline use_pipeline = POINTER(set_pipeline, to->functions[SET_PIPELINE]);
  set_bind_group use_group = POINTER(set_bind_group, to->functions[SET_BIND_GROUP]);
  dispatch run = POINTER(dispatch, to->functions[DISPATCH]);
  uint64_t pipeline = 0, group = 0;
  if (count && to->pass == NULL) to->pass = POINTER(begin_pass, to->functions[BEGIN_PASS])(to->encoder, NULL);
  for (size_t i = 0; i < count; i++) {
    const uint64_t *row = rows + i * DISPATCH_WORDS;
    if (row[0] != pipeline) use_pipeline(to->pass, POINTER(handle, pipeline = row[0]));
    if (row[1] != group) use_group(to->pass, 0, POINTER(handle, group = row[1]), 0, NULL);
    run(to->pass, (uint32_t)row[2], (uint32_t)row[3], (uint32_t)row[4]);
  }
}

/* Copies, dispatches and more copies. `copies` are the rows of both, those before the dispatches first. */
static void encode_rows(Encoder *to, const uint64_t *copies, size_t before, size_t after, const uint64_t *dispatches,
                        size_t dispatch_count) {
  encode_copies(to, copies, before);
  encode_dispatches(to, dispatches, dispatch_count);
  encode_copies(to, copies + before * COPY_WORDS, after);
}

/* The finished command buffer of an encoder, which the caller releases. Errors go to the device's error callback. */
static uint64_t finish(const uint64_t *functions, uint64_t encoder) {
  return (uint64_t)(uintptr_t)POINTER(finish_encoder, functions[FINISH])(POINTER(handle, encoder), NULL);
}

/* The same, and the encoder's end. */
static uint64_t end_encoder(Encoder *to) {
  end_pass(to);
  uint64_t commands = finish(to->functions, (uint64_t)(uintptr_t)to->encoder);
  POINTER(use, to->functions[RELEASE_ENCODER])(to->encoder);
  return commands;
}

/* The handle of an encoder that holds such rows, for `finish`. */
static uint64_t record(const uint64_t *functions, uint64_t device, const uint64_t *copies, size_t before, size_t after,
                       const uint64_t *dispatches, size_t dispatch_count) {
  Encoder to = begin_encoder(functions, device);
  encode_rows(&to, copies, before, after, dispatches, dispatch_count);
  end_pass(&to);
  return (uint64_t)(uintptr_t)to.encoder;
}

/* The command buffer of such rows. */
static uint64_t encode(const uint64_t *functions, uint64_t device, const uint64_t *copies, size_t before, size_t after,
                       const uint64_t *dispatches, size_t dispatch_count) {
  Encoder to = begin_encoder(functions, device);
  encode_rows(&to, copies, before, after, dispatches, dispatch_count);
  return end_encoder(&to);
}
