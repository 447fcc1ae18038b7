"""The contract between both lines: manifest, files and digests, image geometry, engine and gate of one bundle. Both
lines import this room, so it knows no HTTP, no metrics, no processes and no desired state.
"""
