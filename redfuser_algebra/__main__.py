"""The command `redfuser`, also as `python -m redfuser_algebra`: Ctrl-C is heard from the first import on."""
import sys

try:
    from redfuser_algebra.cli import main
except KeyboardInterrupt:
    sys.exit(130)

if __name__ == "__main__":
    main()
