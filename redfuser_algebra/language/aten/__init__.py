"""Graphs that torch.export captured, cut into operators."""
