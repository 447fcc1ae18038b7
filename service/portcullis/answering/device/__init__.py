"""One device and the processes that share it: lanes between fronts and the engine process, the board on which all see
how long its queue is, and the batches on the engine's side. Nothing here knows HTTP, gates or how processes start.
"""
