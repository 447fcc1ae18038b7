"""The training line: images → backbone + head → loss → fit → calibrate → evaluate → export.

It may import from `portcullis` the room `bundle`, which defines and reads a bundle, and `errors`; `portcullis` never
imports it.
"""
