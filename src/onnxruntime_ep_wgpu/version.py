"""The version of this package: what is built, shown and told to ONNX Runtime; and when this process began to import it."""

import time

VERSION = "0.1.0"
BEGAN = time.time_ns()
"""Files of the package that are newer may not be those that this process runs."""
