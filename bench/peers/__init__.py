"""Servers that a user would pick instead, each serving the same ONNX file as its documentation recommends.

Every script here runs in a virtual environment of its own and imports nothing of this project.
"""
