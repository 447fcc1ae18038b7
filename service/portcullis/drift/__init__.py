"""Recent scores against the reference: rings → window, evidence, histogram → published reports, counts for a fleet.
Pure arithmetic but for the rings, the watcher and what is published; it knows no HTTP and no pipelines.
"""
