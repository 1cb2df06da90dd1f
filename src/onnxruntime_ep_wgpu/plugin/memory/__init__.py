"""Device memory as ONNX Runtime sees it: `space` (addresses to buffers), `transfer` (copies)."""
