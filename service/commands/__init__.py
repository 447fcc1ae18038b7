"""The commands that talk to a running service or to a bundle; `serve` is in service.__main__."""
