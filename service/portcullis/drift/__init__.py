"""Recent scores against the reference: rings → window, evidence, histogram → published reports. Pure arithmetic but
for the rings, the watcher and the published file; it knows no HTTP and no pipelines.
"""
