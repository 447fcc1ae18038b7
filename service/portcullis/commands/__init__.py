"""The commands: what talks to a running service or to a bundle, and `serve` with the sources of its settings. They
print and parse; the work is the client's, the bundle's or the supervisor's, and they know no route.
"""
