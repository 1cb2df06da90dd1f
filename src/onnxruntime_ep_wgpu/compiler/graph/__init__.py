"""The ONNX graph before it is lowered: what is constant, what operators mean, and what was read of its constants.

`schemas` (which version of an operator a model means), `fold` (which nodes are constants), `expand` (operators that ONNX
defines by others), `tied` (constants that are one in memory), `facts` (which constants were looked at), `inference/` (types and
shapes of what is not lowered). Nothing here depends on which operators have kernels.
"""
