"""Refutation: experiments on exact numbers that show that no bounded state can carry a reduction."""
