"""`python -m onnxruntime_ep_wgpu` is the command `wgpu-ep`."""

import sys

from .cli import main

sys.exit(main())
