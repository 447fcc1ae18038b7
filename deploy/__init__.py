"""What the person on call needs. `python -m deploy.generate` writes the parts that follow from the code."""
