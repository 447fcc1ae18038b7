"""The words of the command line: commands, flags, help, and the host's settings that must come before torch. It knows
no command's work and imports no torch.
"""
