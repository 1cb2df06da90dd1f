"""Decides which nodes of a model run here.

- `graph`: reads a graph from ONNX Runtime; `shown`: this graph as data of our own; `converted`: the same in onnx_ir.
- `external`: the files of external weights; `editing`: changes of a `shown` graph; `subgraph`: a group cut out of a graph.
- `types`: types and ranks that ONNX Runtime cannot infer; `inferred`: these types as plain data.
- `claim`: makes the `decision`; `outcome`: the result per node; `partition`: convex groups; `lowerings`: lowered groups.
- `enclosing`: whether nodes of a body may run here; `forced`: nodes that the user keeps on the CPU.
- `crossings`: outputs that must not share memory with inputs; `ort_format`: the check of models in format `.ort`.
- `report`, `placement`: the placement of nodes, for users.

`claim`, `converted`, `lowerings`, `subgraph` and `types` import the compiler, so they are imported only when it is needed.
"""
