# make demo      recognise text in a page, on the GPU that is found
# make test      make check, then the tests, in an environment made on the first run (.venv)
# make test-all  make check, then every test, the exhaustive ones too
# make check     ruff and mypy
# make clean     removes what the others made

PYTHON := .venv/bin/python
PYTEST := $(PYTHON) -m pytest -n 2 --no-header -p no:cacheprovider

.PHONY: demo test test-all check clean

demo:
	@scripts/setup demo
	@$(PYTHON) -m demo

test: check
	@$(PYTEST) -m "not exhaustive"

test-all: check
	@$(PYTEST)

check:
	@scripts/setup test
	@$(PYTHON) -m ruff check --quiet .
	@$(PYTHON) -m mypy --strict src

clean:
	@rm -rf .venv .cache build dist web/node_modules web/dist web/build .mypy_cache .ruff_cache .pytest_cache .hypothesis src/*.egg-info
	@find src tests -name __pycache__ -prune -exec rm -rf {} +
	@find src -name '*.so' -delete
