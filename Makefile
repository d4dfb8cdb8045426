# Thin: every target is one command of the grader's. `make` alone explains itself.
# Values go by the environment: no shell reads a folder's name, and make does not expand what stands in it.
OPTIONS := P SUBMISSION CASE DEVICE SEED OUT TARGETS COMPILE SWEEP NB SUBMISSIONS ROSTER \
           LANES ENGINE PARTITION GPUS ARRAY N D WINDOW SINKS DTYPE ROOM HINTS SANDBOX VERBOSE
$(foreach name,$(OPTIONS),$(eval override $(name) := $$(value $(name))))
export $(OPTIONS) PIP_ARGS PYTHON
ifneq ($(SANDBOX),)
export GRADER_SANDBOX := $(SANDBOX)
endif
PIP_ARGS ?=
PYTHON ?=

# PYTHON=python3 uses that interpreter as it is; otherwise .venv is made and kept whole.
PY := $(if $(PYTHON),$(PYTHON),.venv/bin/python)
SETUP := $(if $(PYTHON),,setup)
ARGS = $(if $(SUBMISSION),--submission "$$SUBMISSION") $(if $(P),--problems "$$P") $(if $(CASE),--case "$$CASE") \
       $(if $(DEVICE),--device "$$DEVICE") $(if $(SEED),--seed "$$SEED") $(if $(OUT),--out "$$OUT") \
       $(if $(TARGETS),--targets "$$TARGETS") $(if $(filter no,$(COMPILE)),--no-compile) \
       $(if $(filter no,$(HINTS)),--no-hints) $(if $(VERBOSE),--verbose)

CLASS = $(if $(P),--problems "$$P") $(if $(DEVICE),--device "$$DEVICE") $(if $(SEED),--seed "$$SEED") \
        $(if $(OUT),--out "$$OUT") $(if $(TARGETS),--targets "$$TARGETS") $(if $(filter no,$(COMPILE)),--no-compile) \
        $(if $(ROSTER),--roster "$$ROSTER") $(if $(LANES),--lanes "$$LANES") $(if $(ENGINE),--engine "$$ENGINE") \
        $(if $(PARTITION),--partition "$$PARTITION") $(if $(GPUS),--gpus "$$GPUS") $(if $(ARRAY),--array "$$ARRAY")

TRY = --problem "$$P" $(if $(SUBMISSION),--submission "$$SUBMISSION") $(if $(DEVICE),--device "$$DEVICE") \
      $(if $(SEED),--seed "$$SEED") $(if $(N),--N "$$N") $(if $(D),--D "$$D") $(if $(WINDOW),--window "$$WINDOW") \
      $(if $(SINKS),--sinks "$$SINKS") $(if $(DTYPE),--dtype "$$DTYPE")

TESTS := grader/tests report/tests notebooks/tests web/tests
TEST_EXTRAS := notebooks site site-test class class-test slurm
ROOM_TESTS = $(if $(ROOM),$(or $(wildcard grader/tests/$(ROOM) $(ROOM)/tests),$(error no room has tests by the name \
             $(ROOM); they are $(notdir $(patsubst %/__init__.py,%,$(wildcard grader/tests/*/__init__.py))) report notebooks web)),$(TESTS))

.DEFAULT_GOAL := help
.PHONY: help setup doctor grade watch try class gradescope hint show profile report notebooks site site-test test test-all test-matrix sample skeletons lint lock

help:
	@echo "make grade       grade problems/; everything it needs is set up first"
	@echo "make watch       grade again whenever a module is saved: make watch P=6"
	@echo "make try         your scores, weights and output beside the right ones, on small tensors: make try P=6"
	@echo "make class       grade a folder of submissions, and go on where that was stopped: make class SUBMISSIONS=folder"
	@echo "make gradescope  autograder.zip, to upload as a Gradescope autograder"
	@echo "make hint        where to look, a question, what to read, ...: one hint more each time: make hint P=6"
	@echo "make show        draw one case, passed or not: make show P=6 CASE=\"ragged tail\""
	@echo "make profile     look inside a kernel, on a GPU with Nsight Compute: make profile P=4"
	@echo "make report      measure every kernel at every shape, then tables and plots; without a GPU a quick one"
	@echo "make sample      block-sparse patterns with their right answers, as files: samples/, or OUT=folder"
	@echo "make notebooks   run every notebook; fails where one comes out otherwise than committed, and writes it anew"
	@echo "make site        notebooks, report and README as pages with search, in site/; open site/index.html"
	@echo "make site-test   the site's own tests, every page looked at in Chromium"
	@echo "make test        the repository's own tests: the grader graded; of one room alone: make test ROOM=diagnosis"
	@echo "make test-matrix each version of Triton that a user may bring grades the solutions and others; a table"
	@echo "make test-all    every test; fails where one was skipped that needs no GPU; adds packages to .venv"
	@echo "make setup       only set up .venv"
	@echo "make doctor      what this machine offers: sandbox, GPU, compiler, versions; and what to install"
	@echo "make skeletons   problems/ from solutions/; files you have edited are kept"
	@echo "make lint        ruff, as the maintainers run it"
	@echo "make lock        locks/ from pyproject.toml, for maintainers"
	@echo
	@echo "Options of make grade, make hint, make show and make profile:"
	@echo "  P=3 or P=3,5-7          only these problems; P=x1,x2,x3 are labs, for no points"
	@echo "  CASE=\"ragged tail\"      only the cases with this name"
	@echo "  SUBMISSION=path         a folder holding some or all of the modules"
	@echo "  DEVICE=cpu or cuda      where to run (a GPU if there is one)"
	@echo "  SEED=1                  other inputs of the same kind"
	@echo "  TARGETS=sm_86,gfx942    GPUs to compile the kernels for (sm_80,sm_90)"
	@echo "  COMPILE=no              do not ask whether they compile for a GPU"
	@echo "  VERBOSE=1               every failing case whole; else the first, and a line for each other"
	@echo "  HINTS=no                do not look closer at what is wrong: saves seconds, and tells less"
	@echo "  OUT=folder              where results.json, report.html, pictures and profiles go"
	@echo "Options of make try: P, SUBMISSION, DEVICE, SEED as above; N=8 D=16 WINDOW=3 SINKS=1 DTYPE=float16"
	@echo "Options of make class: P, SEED, DEVICE, TARGETS, COMPILE as above; OUT=folder (class), ROSTER=roster.csv, LANES=2"
	@echo "  SANDBOX=none            grade also where submissions cannot be put in a sandbox (bubblewrap)"
	@echo "  on a cluster: ENGINE=slurm PARTITION=name GPUS=1 (of each job) ARRAY=16 (jobs at a time)"
	@echo "Options of make report: SWEEP=\"--only P4,fast --lengths 16k\"; SWEEP=--help lists them"
	@echo "Options of make notebooks: NB=02 or NB=\"02 04\", only these"
	@echo "Options of every target:"
	@echo "  PYTHON=python3          use this interpreter as it is, install nothing"
	@echo "  PIP_ARGS=\"...\"          passed to pip (docs/students.md: saving gigabytes on a machine without a GPU)"

setup:
	@python3 grader/commands/environment.py

doctor: $(SETUP)
	@$(PY) -m grader.commands.doctor

grade: $(SETUP)
	@$(PY) -m grader $(ARGS)

watch: $(SETUP)
	@$(PY) -m grader --watch $(ARGS)

try: $(SETUP)
	@$(PY) -m grader.commands.trying $(TRY)

class: $(SETUP)
	@$(if $(PYTHON),,python3 grader/commands/environment.py class $(filter slurm,$(ENGINE)) || echo "going on without what could not be added")
	@$(PY) -m grader.classroom $(CLASS) $(if $(SUBMISSIONS),-- "$$SUBMISSIONS")

gradescope: $(SETUP)
	@$(PY) -m grader.classroom.export.bundle $(if $(OUT),"$$OUT/autograder.zip")

hint: $(SETUP)
	@$(PY) -m grader --hint $(ARGS)

show: $(SETUP)
	@$(PY) -m grader --show $(ARGS)

profile: $(SETUP)
	@$(PY) -m grader --profile $(ARGS)

report: $(SETUP)
	@$(PY) -m report $$SWEEP

sample: $(SETUP)
	@$(PY) -m report sample every $(if $(OUT),--out "$$OUT")

notebooks:
	@$(if $(PYTHON),,python3 grader/commands/environment.py notebooks)
	@$(PY) -m notebooks.build $$NB

site:
	@$(if $(PYTHON),,python3 grader/commands/environment.py site)
	@$(PY) -m web.build

site-test:
	@$(if $(PYTHON),,python3 grader/commands/environment.py site site-test)
	@$(PY) -m pytest web/tests -q

test: $(SETUP)
	@$(PY) -m pytest $(ROOM_TESTS) -q -n auto -m "not thorough"

test-all:
	@$(if $(PYTHON),,python3 grader/commands/environment.py $(TEST_EXTRAS))
	@$(PY) -m pytest $(TESTS) -q -n auto --none-left-out $(if $(REST),--not-again)

test-matrix: $(SETUP)
	@$(PY) -m grader.tests.matrix

skeletons: $(SETUP)
	@$(PY) -m grader.commands.skeletons

# For maintainers: it needs uv (pip install uv).
lock:
	@command -v uv > /dev/null || { echo "make lock needs uv: pip install uv"; exit 1; }
	@$(if $(PYTHON),$(PYTHON),python3) locks/lock.py

lint: $(SETUP)
	@$(PY) -m ruff check . && $(PY) -m ruff format --check .
