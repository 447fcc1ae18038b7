"""The processes of one machine: an instance, as a supervisor with workers or whole in one process; how they share out
cores and devices. The only room that puts all others together; nothing but the command line knows it.
"""
