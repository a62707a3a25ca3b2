"""What the user writes: expressions over named axes, operators, formulas, and the cascades found in them."""
