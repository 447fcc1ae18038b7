"""The commands: what talks to a running service or to a bundle, `serve` with the sources of its settings, and what runs
on a Ray cluster. They print and parse; the work is the client's, the bundle's or an instance's, and they know no route.
"""
