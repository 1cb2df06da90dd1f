"""Declares the extension module `onnxruntime_ep_wgpu._submit` (cffi, one binary for Python 3.11 and later).

In: tickets.c, encode.c, submit.c, readback.c and copy.c. Out: `ffibuilder`, which setup.py names in `cffi_modules`.
"""

from __future__ import annotations

import sys
from pathlib import Path

import cffi

HERE = Path(__file__).resolve().parent

ffibuilder = cffi.FFI()
_LISTS = (
    "const uint64_t *functions, uint64_t device, const uint64_t *copies, size_t before, size_t after,"
    " const uint64_t *dispatches, size_t dispatch_count"
)
ffibuilder.cdef(
    f"""
    uint64_t record({_LISTS});
    uint64_t finish(const uint64_t *functions, uint64_t encoder);
    uint64_t encode({_LISTS});
    """
    """
    typedef struct Tickets Tickets;
    struct Tickets {
      uint64_t (*submit)(Tickets *its, size_t count, void *const *commands);
      void (*wait)(Tickets *its, uint64_t ticket);
      void (*look)(Tickets *its);
      uint64_t device, queue, instance;
      uint64_t functions[4];
      int64_t submits;
      int by_future;
    };
    uint64_t indexed_submit(Tickets *its, size_t count, void *const *commands);
    void indexed_wait(Tickets *its, uint64_t ticket);
    void indexed_look(Tickets *its);
    uint64_t futures_submit(Tickets *its, size_t count, void *const *commands);
    void futures_wait(Tickets *its, uint64_t ticket);
    void futures_look(Tickets *its);
    typedef struct {
      const uint64_t *functions;
      uint64_t device, queue, nothing, staging, staging_bytes;
      Tickets *tickets;
      uint64_t (*complaints)(void);
      int64_t lost, submits, dispatches, runs, runs_ahead, soon, looked, uploads, downloads;
      int64_t most_unflushed, reused, free_ranges, free_bytes, last[...];
      size_t copiers;
      ...;
    } Queue;
    typedef ... Part;
    typedef struct { int64_t status; char text[...]; ...; } Answer;
    Answer *map_buffer(Queue *queue, uint64_t buffer, uint64_t mode, size_t length, uint64_t submitted);
    void answer_end(Answer *answer);
    int64_t wait_for(Queue *queue, const Answer *answer);
    int copy_out(Queue *queue, uint64_t buffer, size_t length, const uint64_t *rows, size_t count);
    int leave_staging(Queue *queue, uint64_t buffer, uint64_t bytes);
    Answer *download(Queue *queue, const Part *parts, size_t count);
    int downloaded(Queue *queue, Answer *answer, const Part *parts, size_t count);
    typedef struct { ...; } Turn;
    typedef struct {
      Queue *queue;
      Turn *turn;
      const uint64_t *dispatches;
      size_t count, per_submission;
      const uint64_t *copies;
      size_t before, after;
      int64_t ahead;
      ...;
    } Work;
    enum { MOST_AHEAD, ... };
    void queue_begin(Queue *queue);
    void queue_end(Queue *queue);
    void queue_hold(Queue *queue);
    void queue_release(Queue *queue);
    void turn_begin(Turn *turn);
    void turn_end(Turn *turn);
    int submit(Queue *queue, Turn *turn, const uint64_t *commands, size_t count, uint64_t *ticket);
    int64_t wrote(Queue *queue, int64_t bytes);
    int upload(uint64_t queue, uint64_t buffer, uint64_t offset, const void *data, size_t bytes);
    size_t parts(const Work *work);
    uint64_t record_ahead(const Work *work, size_t *first);
    void set_ahead(Work *work, const uint64_t *encoders, size_t count);
    int is_behind(const Work *work);
    int run(Work *work);
    void copy_bytes(uint64_t to, uint64_t from, size_t count, size_t threads);
    void provide_bytes(uint64_t to, size_t count, size_t threads);
    """
)
ffibuilder.set_source(
    "onnxruntime_ep_wgpu._submit",
    '#include "tickets.c"\n#include "encode.c"\n#include "submit.c"\n#include "readback.c"',
    include_dirs=[str(HERE)],
    depends=[
        str(HERE / name)
        for name in (
            "copy.c",
            "encode.c",
            "outcomes.h",
            "platform.h",
            "queue.h",
            "readback.c",
            "submit.c",
            "tickets.c",
            "tickets.h",
        )
    ],
    libraries=["psapi"] if sys.platform == "win32" else [],
    py_limited_api=True,
)
