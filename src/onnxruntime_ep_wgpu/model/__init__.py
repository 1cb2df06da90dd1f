"""Models into onnx_ir, in the order data flows: `ort_graph` (what ONNX Runtime shows), `subgraph` (a group cut out of it);
`file` (where a model file keeps its weights)."""
