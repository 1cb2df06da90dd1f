"""The cost of a program before its first session: CPU time of importing, registering and listing devices.

    python -m bench.start [--runs N]

Each run is its own process. `driver` is the time that the graphics drivers need to enumerate adapters, measured in another
process by a bare call of wgpu-native; `ours` is the rest. Values are minima of N runs, in milliseconds of CPU time of all
threads.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys

OURS = """
import json, time
import onnxruntime as ort
start = time.process_time()
import onnxruntime_ep_wgpu as webgpu_ep
imported = time.process_time()
webgpu_ep.PROVIDER
webgpu_ep.register()
registered = time.process_time()
webgpu_ep.devices()
listed = time.process_time()
print(json.dumps({"import": imported - start, "register": registered - imported, "list": listed - registered}))
"""
DRIVER = """
import json, time
from onnxruntime_ep_wgpu.device.display import quiet_display_probe
from onnxruntime_ep_wgpu.device.webgpu import libraries
start = time.process_time()
with quiet_display_probe():
    libraries.base().adapters()
print(json.dumps({"driver": time.process_time() - start}))
"""


def least(script: str, runs: int) -> dict[str, float]:
    """Returns the minimum of each time that a script prints, in milliseconds."""
    rows = []
    for _ in range(runs):
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
        rows.append(json.loads(done.stdout))
    return {name: 1e3 * min(row[name] for row in rows) for name in rows[0]}


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench.start", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--runs", type=int, default=7, metavar="N", help="processes of each kind (7)")
    runs = parser.parse_args().runs
    times = least(OURS, runs) | least(DRIVER, runs)
    times["ours"] = times["import"] + times["register"] + times["list"] - times["driver"]
    for name, value in times.items():
        print(f"{name:8s} {value:7.1f} ms")


if __name__ == "__main__":
    main()
