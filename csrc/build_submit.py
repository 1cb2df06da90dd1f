"""Declares the extension module `onnxruntime_ep_wgpu._submit`: calls of WebGPU libraries without Python, and their callbacks.

It is built by cffi, as one binary for Python 3.11 and later.

In: tickets.c, encode.c, submit.c, rounds.c, readback.c, chain.c and copy.c; CALLBACKS. Out: `ffibuilder`, which setup.py names in
`cffi_modules`. A callback is a C function `c_NAME` that calls the Python function `py_NAME` until that has answered
(python_call.h). Its types are declared without the library's header: handles are pointers, enumerations are int.
"""

from __future__ import annotations

import sys
from pathlib import Path

import cffi

HERE = Path(__file__).resolve().parent

CALLBACKS = {
    "on_error": "const void *device, int type, Text message",
    "on_lost": "const void *device, int reason, Text message",
    "on_device": "int status, void *device, Text message",
    "on_popped": "int status, int type, Text message",
}


def callbacks() -> tuple[str, str, str]:
    """Returns (cdef of the C functions, cdef of the Python functions, C source) for all callbacks."""
    c_side, python_side, source = [], [], []
    for name, first in CALLBACKS.items():
        parameters = f"{first}, void *userdata1, void *userdata2"
        arguments = ", ".join(part.replace("*", " ").split()[-1] for part in parameters.split(","))
        c_side.append(f"void c_{name}({parameters});")
        python_side.append(f"void py_{name}(int again, {parameters});")
        source.append(
            f"static void py_{name}(int again, {parameters});\n"
            f"static void c_{name}({parameters}) {{ WgpuCall call; if (!wgpu_enter(&call)) return; "
            f"do py_{name}(call.again, {arguments}); while (wgpu_unanswered(&call)); wgpu_leave(&call); }}"
        )
    return "\n".join(c_side), "\n".join(python_side), "\n".join(source)


_c_side, _python_side, _source = callbacks()
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
    typedef struct { const char *data; size_t length; } Text;
    void wgpu_interrupt_later(void);
    void wgpu_answer(int64_t answer);
    int wgpu_add_functions(const char *module);
    void wgpu_count_error(void);
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
      int64_t lost, submits, dispatches, runs, runs_ahead, runs_seen, uploads, downloads;
      int64_t most_unflushed, reused, free_ranges, free_bytes, last[...];
      size_t copiers;
      ...;
    } Queue;
    typedef struct { uint64_t buffer, to, bytes; } Part;
    typedef struct { int64_t status; char text[...]; ...; } Answer;
    Answer *map_buffer(Queue *queue, uint64_t buffer, uint64_t mode, size_t length, uint64_t submitted);
    void answer_end(Answer *answer);
    int64_t wait_for(Queue *queue, const Answer *answer);
    int copy_out(Queue *queue, uint64_t buffer, size_t length, const uint64_t *rows, size_t count);
    int leave_staging(Queue *queue, uint64_t buffer, uint64_t bytes);
    Answer *download(Queue *queue, const Part *parts, size_t count);
    int downloaded(Queue *queue, Answer *answer, const Part *parts, size_t count);
    typedef struct { ...; } Turn;
    typedef struct { uint64_t buffer; const char *rows; size_t bytes; } Numbers;
    typedef struct {
      Queue *queue;
      Turn *turn;
      const uint64_t *dispatches;
      size_t count, per_submission;
      const uint64_t *copies;
      size_t before, after;
      const Numbers *numbers;
      size_t numbered;
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
    enum { REFUSED, DONE, BEGUN, ... };
    int run(Work *work, size_t number);
    typedef struct {
      const uint64_t *dispatches, *before, *after;
      size_t count, befores, afters;
    } Round;
    typedef struct { Queue *queue; Part written, read; uint64_t staging; Answer *answer; } Chain;
    void chain_end(Chain *chain);
    int submit_chain(void *chain, void *const *works, const size_t *numbers, size_t count);
    int read_chain(Chain *chain);
    int run_rounds(Queue *queue, Turn *turn, const Round *two, uint64_t first, uint64_t count, size_t longest);
    void copy_bytes(uint64_t to, uint64_t from, size_t count, size_t threads);
    void provide_bytes(uint64_t to, size_t count, size_t threads);
    int same_bytes(uint64_t one, uint64_t other, size_t count, size_t threads);
    """
)
ffibuilder.cdef(_c_side)
ffibuilder.cdef('extern "Python" {\n' + _python_side + "\n}")
ffibuilder.set_source(
    "onnxruntime_ep_wgpu._submit",
    '#include "tickets.c"\n#include "encode.c"\n#include "submit.c"\n#include "rounds.c"\n#include "readback.c"\n'
    '#include "chain.c"\n#include "python_call.h"\n' + _source,
    include_dirs=[str(HERE)],
    depends=[
        str(HERE / name)
        for name in (
            "chain.c",
            "copy.c",
            "encode.c",
            "outcomes.h",
            "platform.h",
            "python_call.h",
            "queue.h",
            "readback.c",
            "reported_errors.h",
            "rounds.c",
            "submit.c",
            "tickets.c",
            "tickets.h",
        )
    ],
    libraries=["psapi"] if sys.platform == "win32" else [],
    py_limited_api=True,
)
