"""The command `redfuser`: fuse, prove, gradient, export, audit, run, tune, catalogue, explain, demo, bench, lab.

Exit codes: 0 fused, 1 not fusable, 2 bad input, 3 undecided, 4 a kernel failed its audit, 70 a fault of this package, 130 stopped by Ctrl-C.
Tables and colour are for terminals; piped output is plain text.
"""
from __future__ import annotations

import _thread
import sys
import threading
import traceback

import typer

from redfuser_algebra.bench.commands import bench
from redfuser_algebra.cli.asking import BAD_INPUT, FAULT, STOPPED, complain
from redfuser_algebra.cli.forms import explain, fuse, gradient, prove
from redfuser_algebra.cli.kernels import audit, export, run, tune
from redfuser_algebra.cli.tours import catalogue, demo, lab
from redfuser_algebra.console import err
from redfuser_algebra.language.errors import RedfuserError

UsageError = typer.BadParameter.__base__
"""Newer typers carry their own click, older ones import it: this is the class that the one at hand raises."""

app = typer.Typer(name="redfuser", no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False,
                  help="Write a cascaded reduction as mathematics; learn whether it runs in one pass, and run it so.")
app.add_typer(bench, name="bench")
for command in (fuse, prove, gradient, run, export, tune, audit, catalogue, explain, demo, lab):
    app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True} if command in (run, lab) else None)(command)


def status_of(arguments: list[str] | None = None) -> int:
    """Run a command line; its exit code."""
    try:
        return app(arguments, standalone_mode=False) or 0
    except RedfuserError as error:
        complain(error)
        return BAD_INPUT
    except UsageError as error:
        error.show()
        return BAD_INPUT
    except (KeyboardInterrupt, typer.Abort):
        err.print("redfuser: stopped")
        return STOPPED
    except Exception:
        traceback.print_exc()
        err.print("redfuser: this is a fault of redfuser_algebra, not of your input; please report it with the lines above")
        return FAULT


def heard_again(ignored: object) -> None:
    """Ctrl-C that fell into the callback of a weak reference or a finalizer, where Python ignores errors, is raised once more after it."""
    if ignored.exc_type is KeyboardInterrupt:
        threading.Timer(0.01, _thread.interrupt_main).start()
    else:
        sys.__unraisablehook__(ignored)


def main() -> None:
    """The console script."""
    sys.unraisablehook = heard_again
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="replace")
    sys.exit(status_of())
