"""From a measured run to a bundle that is proven by serving it: parity, manifest, report and plots. It measures
nothing itself.
"""
