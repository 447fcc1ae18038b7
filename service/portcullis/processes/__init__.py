"""The processes of one machine: the supervisor, its workers, and how they share out cores and devices. The only room
that puts all others together; nothing but the command line knows it.
"""
