"""What `portcullis-train …` does, a module a command: its flags, its help, and what is said of its work. Other rooms do
the work. No command prints: it is given how to say a line. Nothing of torch is imported before a command needs it.
"""
