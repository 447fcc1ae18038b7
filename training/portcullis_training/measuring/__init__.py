"""What a trained classifier is worth: predictions, temperature, calibration scores, figures inside and outside, cost.
It changes no weight and writes no bundle.
"""
