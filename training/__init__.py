"""The training line: images → backbone + head → loss → fit → calibrate → evaluate → export.

`training` may import from `service` only what defines or reads a bundle; `service` never imports `training`.
"""
