"""Many images to one table: where they are (`images.py`), what a row is (`rows.py`), the sheet (`sheet.py`), and who
makes the rows: a running service, or a bundle on the cores of a machine. None of them knows the command line.
"""
