"""Real models through stock onnxruntime: placement, results, threads, pipelines and memory."""
