"""`python -m redfuser_algebra` is the command `redfuser`."""
from redfuser_algebra.cli import main

if __name__ == "__main__":
    main()
