"""The contract between both lines: manifest, files and digests, sources, image geometry, engine and gate of a bundle.
Both lines import this room, so it knows no HTTP, no metrics, no processes and no desired state.
"""
