"""`python -m onnxruntime_ep_wgpu` is the command `wgpu-ep`."""

import sys

from .start import main

sys.exit(main())
