"""Several images as one: material for regularisers that mix training images and their labels. It knows tensors; no
method, loss or loop.
"""
