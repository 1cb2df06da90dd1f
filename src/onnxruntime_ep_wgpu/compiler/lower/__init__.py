"""ONNX graph to lowered graph, node by node, or why a node cannot be lowered.

`lower` goes over a graph and `lower_node` over one node: `ops/` have the operators, which append to a `builder`. Operands are
`graph_inputs`, `weights` and what nodes made (`operand`, and `structures` of sequences). What is required of runs and of the
target is in `requirements`, in the words of `messages`; `limits` says which results are held to those of memory. `malformed`
decides whether a node or its lowering is at fault, `channels` and `memory_format` are about images whose channels are last, and
`model_types` about values of bodies that are lowered only to know their types. `last_row` makes logits of one row before that.
"""
