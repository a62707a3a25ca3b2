"""What is true: elementwise functions, monoids and their endomorphisms, and the table of laws.  Pure data."""
