# make demo      recognise text in a page, on the GPU that is found
# make web-demo  serves the page of web/demo and prints its address; CHAT=DIR has a model folder of transformers.js to chat with
# make test      make check, then a sample of the tests (tests/sampling.py), in an environment made on the first run (.venv)
# make test-rest the tests that make test leaves out, all pairs of what they vary
# make test-all  both
# make test-ray  installs Ray (200 MB) and runs the tests that need it
# make docs      writes the site of the documents to build/site
# make check     ruff and mypy
# make help      prints these lines
# make clean     removes what the others made, pictures of the demo included

PYTHON := .venv/bin/python
# A process per core, at least two and at most six: each takes up to 3 GB.
JOBS := $(shell n=$$(nproc 2>/dev/null || echo 2); [ $$n -lt 2 ] && n=2; [ $$n -gt 6 ] && n=6; echo $$n)
PYTEST := $(PYTHON) -m pytest -n $(JOBS) --no-header -p no:cacheprovider

# Tests start hundreds of processes, each of which would compile this package again where nothing may keep byte code.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo help docs web-demo test test-rest test-all test-ray check clean

demo:
	@scripts/setup demo
	@$(PYTHON) -m demo

help:
	@sed -n 's/^# \(make .*\)/\1/p' Makefile

web-demo:
	@$(if $(CHAT),[ -d "$(CHAT)" ] || { echo "CHAT=$(CHAT): there is no folder $(CHAT)" >&2; exit 2; })
	@scripts/setup web
	@cd web && node build.mjs
	@$(PYTHON) web/demo/models.py $(if $(CHAT),--chat "$(CHAT)")
	@npm --prefix web run --silent demo

docs:
	@scripts/setup docs
	@NO_MKDOCS_2_WARNING=1 $(PYTHON) -m mkdocs build --quiet
	@echo "build/site/index.html"

test: check
	@$(PYTEST) -m "not exhaustive"

test-rest: check
	@$(PYTEST) -m exhaustive

test-all: test test-rest

test-ray:
	@scripts/setup test
	@$(PYTHON) -m pip install -q -r scripts/ray.txt
	@$(PYTEST) --dist loadfile tests/scale

check:
	@scripts/setup test
	@$(PYTHON) -m ruff check --quiet .
	@$(PYTHON) -m ruff format --quiet --check .
	@$(PYTHON) -m mypy --strict src

clean:
	@rm -rf .venv .cache build dist demo-output web/node_modules web/dist web/build web/demo/public/models web/demo/public/ort .mypy_cache .ruff_cache .pytest_cache .hypothesis src/*.egg-info
	@find src tests -name __pycache__ -prune -exec rm -rf {} +
	@find src -name '*.so' -delete
