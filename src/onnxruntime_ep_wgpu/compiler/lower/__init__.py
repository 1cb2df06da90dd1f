"""Lowers an ONNX graph node by node, or returns the reason why a node cannot be lowered.

* `lower` processes a graph, and `lower_node` processes one node.
* `ops/` contains the operators. They append nodes to a `builder`.
* Operands are `graph_inputs`, `weights` and results of nodes (`operand`). `structures` are sequences and optional values.
* `requirements` are the conditions on runs and on the target, and `messages` are their texts.
* `limits` decides which results must fit the limits of memory.
* `malformed` decides whether the node or its lowering is at fault.
* `channels` and `memory_format` handle images in channels-last layout.
* `model_types` infers types in bodies, which are lowered for their types alone.
* `last_row` reduces logits to one row before lowering.
"""
