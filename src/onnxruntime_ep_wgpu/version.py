"""The version of this package: what is built, shown and told to ONNX Runtime."""

VERSION = "0.1.0"
