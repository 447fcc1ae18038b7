"""The JSON shapes that the API writes and the client reads. Light: the standard library and pydantic, no NumPy, so
that the client stays small.
"""
