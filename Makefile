# `make demo` and `make test` are all a newcomer needs: every target first makes .venv, or refreshes it when
# pyproject.toml has changed. PYTHON=... picks the Python that .venv is made with; ARGS=... is passed on.
.DEFAULT_GOAL := help
.PHONY: help demo test lab bench clean FORCE

ARGS ?=
PYTHONS := $(or $(PYTHON),python3 python3.14 python3.13 python3.12 python3.11 python)
IN_RANGE := import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 14))

# The tree holds sources only: what Python compiles of them is kept in .venv, so that no process compiles it again.
export PYTHONPYCACHEPREFIX := $(CURDIR)/.venv/pycache
unexport PYTHONDONTWRITEBYTECODE
export PIP_DISABLE_PIP_VERSION_CHECK := 1

# Stale means: moved here from another folder (its scripts name the old one), its Python gone, or half made.
VENV_FITS := $(shell grep -sqF "$(CURDIR)/.venv" .venv/pyvenv.cfg \
               && .venv/bin/python -c 'import pip; $(IN_RANGE)' 2>/dev/null && echo yes)

help:
	@echo "make demo    see a cascade found, certified and run"
	@echo "make test    run every test            (ARGS=\"-k name\" narrows)"
	@echo "make lab     open the notebooks in JupyterLab"
	@echo "make bench   measure against the peers"
	@echo "make clean   remove .venv and build output"

demo: .venv/.installed-core
	@.venv/bin/redfuser demo $(ARGS)

test: .venv/.installed-test
	@.venv/bin/python -m pytest -n auto --maxprocesses 4 --dist worksteal $(ARGS)

lab: .venv/.installed-lab
	@.venv/bin/redfuser lab $(ARGS)

bench: .venv/.installed-bench
	@env -u OPENBLAS_CORETYPE -u OPENBLAS_L2_SIZE .venv/bin/redfuser bench $(ARGS)

clean:
	rm -rf .venv build dist
	find redfuser_algebra tests notebooks proofs kernels -name __pycache__ -prune -exec rm -rf {} + 2>/dev/null || true

.venv/.installed-%: .venv/pyvenv.cfg pyproject.toml
	@echo "Installing redfuser-algebra ($*) into .venv; the first time takes a few minutes."
	@.venv/bin/python -m pip install --quiet --editable '.$(if $(filter core,$*),,[$*])'
	@touch $@

.venv/pyvenv.cfg: $(if $(VENV_FITS),,FORCE)
	@for python in $(PYTHONS); do \
	  if $$python -c 'import venv, ensurepip; $(IN_RANGE)' >/dev/null 2>&1; then \
	    echo "Making .venv with $$python ($$($$python --version))."; \
	    exec $$python -m venv --clear "$(CURDIR)/.venv"; \
	  fi; \
	done; \
	echo "redfuser-algebra needs Python 3.11 to 3.14 with its venv module (on Debian: python3-venv), and none of these is one: $(PYTHONS). Install one, or name one: make $(MAKECMDGOALS) PYTHON=/path/to/python" >&2; \
	exit 1
