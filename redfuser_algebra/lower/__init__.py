"""From a fused form to text: the tile program, the schedule, and one printer per target.  Imports no compiler."""
