"""Device memory as ONNX Runtime sees it: `space` (addresses to ranges), `allocation` (what lies in a range), `pool` (those that
come again without Python), `copies` (between pointers), `transfer` (those that ONNX Runtime asks for), `descriptors`
(what it says of a tensor)."""
