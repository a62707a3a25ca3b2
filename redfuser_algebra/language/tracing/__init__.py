"""How NumPy code is read: arrays with named dimensions that record what is done to them."""
