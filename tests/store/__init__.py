"""The cache on disk. `showing` has models as ONNX Runtime shows them, and what is answered; `changes` has models with a twin that
differs in one thing."""
