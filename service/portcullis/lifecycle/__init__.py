"""What is served and how that changes: first state, registry of pipelines, validated changes, shadows, newer versions.
It knows the desired state and pipelines; it knows no HTTP and no processes.
"""
