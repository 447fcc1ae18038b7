"""What outlives a request and a restart: desired state with its audit log, review items, a fleet's counts of drift,
durable files. It knows no pipelines, no HTTP and no arithmetic; whoever asks decides what a change means.
"""
