"""Where bundles come from: a directory, or a URL whose bundles are fetched into a cache and verified. It knows no
desired state: what is served is decided elsewhere, and asked for here by name and version.
"""
