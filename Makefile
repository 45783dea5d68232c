# Thin: everything after the environment is `python -m specdec_lib.pipeline`, which also works without make.
SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

PYTHON ?= python3
VENV ?= .venv
PROFILE ?= cpu
INTO ?=
ARGS ?=
PY := $(VENV)/bin/python
# Modules, never console scripts: those carry the absolute path of the environment they were installed in.
PIPELINE := $(PY) -m specdec_lib.pipeline
# A committed profile measured here: make runs PROFILE=cpu-full INTO=my-full writes to data/my-full.
MEASURED_AS := $(if $(INTO),--as "$(INTO)")
# The stamp holds the lock's content hash, so a clone or `touch` does not rebuild the environment.
LOCK_HASH = $$(sha256sum < requirements.lock | cut -c1-64)

# Else every kernel and every job of an environment that sets it compiles all it imports anew: seconds each.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help env test book html runs lab lint clean doctor site environment.yml faults

help:  ## show this
	@grep -hE '^[a-z.]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 18
	@echo "Variables: PROFILE=$(PROFILE) (make doctor lists them)  INTO=my-NAME (another folder)  VENV=$(VENV)  PYTHON=$(PYTHON)  ARGS="

env:  ## the environment in .venv, from requirements.lock
	@if [ "$$(cat $(VENV)/.specdec-stamp 2>/dev/null)" != "$(LOCK_HASH)" ]; then \
	  $(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "Python 3.11 or newer is needed, this is " + sys.version.split()[0] + "; use make PYTHON=...")'; \
	  echo "Building the environment in $(VENV) (a minute or two) ..." >&2; \
	  rm -f $(VENV)/.specdec-stamp; \
	  $(PYTHON) -m venv $(VENV); \
	  $(PY) -m pip install -qq --no-compile --disable-pip-version-check -r requirements.lock; \
	  $(PY) -m pip install -qq --no-compile --disable-pip-version-check --no-deps --no-build-isolation -e .; \
	  echo "$(LOCK_HASH)" > $(VENV)/.specdec-stamp; \
	fi

test: env  ## every test
	@$(PY) -m pytest -n 2 --dist loadfile $(ARGS)

book: env  ## run what is out of date of PROFILE, then render the report
	@$(PIPELINE) book --profile $(PROFILE) $(MEASURED_AS) $(ARGS)

html: env  ## only render what is in data/
	@$(PIPELINE) html $(ARGS)

runs: env  ## only run what is out of date of PROFILE
	@$(PIPELINE) runs --profile $(PROFILE) $(MEASURED_AS) $(ARGS)

lab: env  ## open the notebooks in JupyterLab
	@$(PIPELINE) lab

doctor: env  ## what this machine can run
	@$(PIPELINE) doctor

site: env  ## a self-contained folder and zip of the report in dist/
	@$(PIPELINE) site

lint: env  ## style and types
	@$(PY) -m ruff check .
	@$(PY) -m ruff format --check .
	@$(PY) -m pyright --pythonpath $(PY)

environment.yml: env  ## write environment.yml again from the lock
	@$(PIPELINE) environment

faults: env  ## apply each patch under tests/faults and see its test fail
	@$(PY) tests/faults/run.py $(ARGS)

clean:  ## remove local runs and rendered pages (keeps weights, committed data and the environment)
	@if [ -x $(PY) ]; then $(PIPELINE) clean; else rm -rf book/_build dist; fi
