"""Language models: generation through onnxruntime-genai and through ours, with small models that are written here."""
