"""Routes only, no decisions: reads requests, calls the pipeline or the registry, writes answers."""
