"""One image from bytes to answer; READ `pipeline.py` FIRST. Here are the queue, the admission to it and what is kept
of an answer for review; nothing here knows HTTP, other workers or which versions should be served.
"""
