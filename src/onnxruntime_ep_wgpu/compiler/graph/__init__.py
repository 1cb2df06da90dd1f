"""The ONNX graph before lowering: its constants, the meaning of its operators, and which constants were read.

- `schemas`: the version of an operator that a model uses.
- `fold`: which nodes are constants.
- `expand`: operators that ONNX defines by other operators.
- `tied`: constants that share memory.
- `facts`: constants that the compiler read.
- `inference/`: types and shapes of nodes that are not lowered.

Nothing here depends on which operators have kernels.
"""
