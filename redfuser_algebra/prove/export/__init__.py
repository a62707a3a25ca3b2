"""Export: a theorem and its proof, or a refusal and its witness, as a Python file that needs nothing of this package."""
