"""The routes: requests to calls of other rooms, their results to JSON. No decisions are made here, and no formula
stands here; it knows pipelines, registry and stores by the methods that it calls.
"""
