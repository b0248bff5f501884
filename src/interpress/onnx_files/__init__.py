"""ONNX files: read one as a PyTorch network, and write a smaller network back into it.

`read` turns the operators of a file into an `fx.GraphModule`, with one function per operator in
`operators/`. `write` changes weights and sizes in the original file. `run` compares both with ONNX
Runtime.
"""
