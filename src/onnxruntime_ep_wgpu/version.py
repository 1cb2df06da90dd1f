"""The version of this package, which builds, commands and ONNX Runtime show, and the time when this process imported it."""

import time

VERSION = "0.1.0"
BEGAN = time.time_ns()
"""Nanoseconds since the epoch. Package files that are newer may differ from the code that this process runs."""
