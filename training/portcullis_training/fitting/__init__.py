"""From splits to a checkpoint; READ `fit.py` FIRST. The loop with its objective, schedule, precision, processes and
checkpoints; it knows nothing of calibration, gates or bundles.
"""
