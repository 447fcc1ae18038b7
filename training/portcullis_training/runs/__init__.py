"""The directory of a run, and files that are written whole or not at all. It knows configs and paths; no torch."""
