"""Many images to one table, without a server in between or with one. `rows.py` makes the rows, `sheet.py` writes them;
neither knows the command line.
"""
