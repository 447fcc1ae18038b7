"""The Open Inference Protocol under `/v2`: the same pipelines in the shapes that Triton's clients speak. It knows the
protocol's tensors and errors; decisions are made where `/v1` makes them.
"""
