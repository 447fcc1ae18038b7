"""What is said to those who watch: every instrument, the collectors that are read when asked, logs and traces. The
only user of prometheus_client and OpenTelemetry; it is told figures and asks nobody for them.
"""
