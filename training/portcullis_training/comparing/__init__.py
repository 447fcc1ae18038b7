"""Twins of other methods or budgets beside one another: trains and measures them with the other rooms and writes the
tables. It knows no formula.
"""
