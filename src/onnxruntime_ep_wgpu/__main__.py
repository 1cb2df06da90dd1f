"""Runs the command `wgpu-ep` as `python -m onnxruntime_ep_wgpu`."""

import sys

from .start import main

sys.exit(main())
