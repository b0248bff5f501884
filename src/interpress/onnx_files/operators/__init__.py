"""The operators of ONNX, one file per family. Each function returns what its node returns."""
