# Every target is one command; `make` alone prints the lines of this file that have `##`.
# Values go by the environment: no shell reads a folder's name, and make does not expand what stands in it.
OPTIONS := P SUBMISSION CASE DEVICE SEED OUT TARGETS COMPILE SWEEP NB SUBMISSIONS ROSTER \
           LANES ENGINE PARTITION GPUS ARRAY N D WINDOW SINKS DTYPE ROOM HINTS SANDBOX VERBOSE \
           PIP_ARGS PYTHON COURSE
$(foreach name,$(OPTIONS),$(eval override $(name) := $$(value $(name))))
export $(OPTIONS)
ifneq ($(COURSE),)
export GRADER_COURSE := $(COURSE)
endif
ifneq ($(SANDBOX),)
export GRADER_SANDBOX := $(SANDBOX)
endif

# PYTHON=python3 uses that interpreter as it is; otherwise .venv is made and kept whole.
PY := $(if $(PYTHON),$(PYTHON),.venv/bin/python)
SETUP := $(if $(PYTHON),,setup)
ADD := $(if $(PYTHON),true,python3 grader/commands/environment.py)

TESTS := grader/tests report/tests notebooks/tests web/tests
ROOM_TESTS = $(if $(ROOM),$(or $(wildcard grader/tests/$(ROOM) $(ROOM)/tests),$(error no room has tests by the name \
             $(ROOM); they are $(notdir $(patsubst %/__init__.py,%,$(wildcard grader/tests/*/__init__.py))) report notebooks web)),$(TESTS))

.DEFAULT_GOAL := help
.PHONY: help setup doctor grade watch try class gradescope hint show profile report notebooks site site-test test test-all test-matrix sample skeletons lint lock

help:
	@awk -F ' ## ' '/^[a-z-]+:.* ## / {sub(/:.*/, "", $$1); printf "make %-11s %s\n", $$1, $$2} sub(/^## ?/, "")' Makefile

# Each of these is a command of `python -m grader`, which takes make's variables from the environment.
grade watch try hint show profile doctor skeletons: $(SETUP)
	@$(PY) -m grader $@ --from-make

grade: ## grade problems/; everything it needs is set up first
watch: ## grade again whenever a module is saved: make watch P=6
try: ## your scores, weights and output beside the right ones, on small tensors: make try P=6
class: $(SETUP) ## grade a folder of submissions, and go on where that was stopped: make class SUBMISSIONS=folder
	@$(ADD) class $(filter slurm,$(ENGINE)) || echo "going on without what could not be added"; $(PY) -m grader.classroom --from-make $(if $(SUBMISSIONS),-- "$$SUBMISSIONS")
gradescope: $(SETUP) ## autograder.zip, to upload as a Gradescope autograder
	@$(PY) -m grader.classroom.export.bundle $(if $(OUT),"$$OUT/autograder.zip")
hint: ## where to look, a question, what to read, ...: one hint more each time: make hint P=6
show: ## draw one case, passed or not: make show P=6 CASE="ragged tail"
profile: ## look inside a kernel, on a GPU with Nsight Compute: make profile P=4
report: $(SETUP) ## measure every kernel at every shape, then tables and plots; without a GPU a quick one
	@$(PY) -m report $$SWEEP
sample: $(SETUP) ## block-sparse patterns with their right answers, as files: samples/, or OUT=folder
	@$(PY) -m report sample every $(if $(OUT),--out "$$OUT")
notebooks: ## run every notebook; fails where one comes out otherwise than committed, and writes it anew
	@$(ADD) notebooks && $(PY) -m notebooks.build $$NB
site: ## notebooks, report and README as pages with search, in site/; open site/index.html
	@$(ADD) site && $(PY) -m web.build
site-test: ## the site's own tests, every page looked at in Chromium
	@$(ADD) site site-test && $(PY) -m pytest web/tests -q
test: $(SETUP) ## the repository's own tests: the grader graded; of one room alone: make test ROOM=diagnosis
	@$(PY) -m pytest $(ROOM_TESTS) -q -n auto -m "not thorough"
test-matrix: $(SETUP) ## each version of Triton that a user may bring grades the solutions and others; a table
	@$(PY) -m grader.tests.matrix
test-all: ## every test; fails where one was skipped that needs no GPU; adds packages to .venv
	@$(ADD) notebooks site site-test class class-test slurm lint && $(PY) -m pytest $(TESTS) -q -n auto --none-left-out $(if $(REST),--not-again)
setup: ## only set up .venv
	@python3 grader/commands/environment.py
doctor: ## what this machine offers: sandbox, GPU, compiler, versions; and what to install
skeletons: ## problems/ from solutions/; files you have edited are kept
lint: ## ruff and mypy, as the maintainers run them
	@$(ADD) lint && $(PY) -m ruff check . && $(PY) -m ruff format --check . && $(PY) -m mypy
lock: ## locks/ from pyproject.toml, for maintainers
	@command -v uv > /dev/null || { echo "make lock needs uv: pip install uv"; exit 1; }; $(if $(PYTHON),$(PYTHON),python3) locks/lock.py

##
## Options of make grade, make hint, make show and make profile:
##   P=3 or P=3,5-7          only these problems; P=x1,x2,x3 are labs, for no points
##   CASE="ragged tail"      only the cases with this name
##   SUBMISSION=path         a folder holding some or all of the modules
##   DEVICE=cpu or cuda      where to run (a GPU if there is one)
##   SEED=1                  other inputs of the same kind
##   TARGETS=sm_86,gfx942    GPUs to compile the kernels for (sm_80,sm_90)
##   COMPILE=no              do not ask whether they compile for a GPU
##   VERBOSE=1               every failing case whole; else the first, and a line for each other
##   HINTS=no                do not look closer at what is wrong: saves seconds, and tells less
##   COURSE=folder           another course than this one: a folder with a course.toml (docs/a-kind-of-your-own.md)
##   OUT=folder              where results.json, report.html, pictures and profiles go
## Options of make try: P, SUBMISSION, DEVICE, SEED as above; N=8 D=16 WINDOW=3 SINKS=1 DTYPE=float16
## Options of make class: P, SEED, DEVICE, TARGETS, COMPILE as above; OUT=folder (class), ROSTER=roster.csv, LANES=2
##   SANDBOX=none            grade also where submissions cannot be put in a sandbox (bubblewrap)
##   on a cluster: ENGINE=slurm PARTITION=name GPUS=1 (of each job) ARRAY=16 (jobs at a time)
## Options of make report: SWEEP="--only P4,fast --lengths 16k"; SWEEP=--help lists them
## Options of make notebooks: NB=02 or NB="02 04", only these
## Options of every target:
##   PYTHON=python3          use this interpreter as it is, install nothing
##   PIP_ARGS="..."          passed to pip (docs/students.md: saving gigabytes on a machine without a GPU)
