"""The served graph: normalisation, backbone, head, temperature, probabilities and score as one module, in torch and as
ONNX. It knows a classifier and a method; no run, split or figure.
"""
