"""What runs on a Ray cluster: replicas of the service (`serving.py`), and the scoring of many images (`scoring.py`).

The only user of Ray. What a replica is, and what a row is, are said elsewhere.
"""
