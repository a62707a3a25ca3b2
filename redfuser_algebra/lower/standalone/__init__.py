"""Kernels as files of their own: what is printed into them, and the plain functions that they bring along."""
