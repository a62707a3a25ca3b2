"""The search: an e-graph rewrites a reduction at a new pivot into states kept at the old one."""
