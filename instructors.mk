# The Makefile's other half: what instructors and maintainers use beside it.
TESTS := grader/tests kernels/tests classroom/tests model/tests report/tests notebooks/tests web/tests
ROOM_TESTS = $(if $(ROOM),$(or $(wildcard grader/tests/$(ROOM) $(ROOM)/tests),$(error no room has tests by the name \
             $(ROOM); they are $(notdir $(patsubst %/__init__.py,%,$(wildcard grader/tests/*/__init__.py))) kernels classroom model report notebooks web)),$(TESTS))


.PHONY: budgets compare skeletons handout class marks gradescope report sample notebooks site site-test test test-all test-matrix lint lock

compare skeletons handout: $(SETUP)
	@$(PY) -m grader $@ --from-make

##
## For instructors and maintainers:
compare: ## your code beside the reference solution, once a problem passes, and what both cost: make compare P=6
skeletons: ## problems/ from solutions/; files you have edited are kept
handout: ## what students get, as a repository without answers: make handout OUT=folder
class: $(SETUP) ## grade a folder of submissions, and go on where that was stopped: make class SUBMISSIONS=folder
	@$(ADD) class $(filter slurm,$(ENGINE)) || echo "going on without what could not be added"; $(PY) -m classroom --from-make $(if $(SUBMISSIONS),-- "$$SUBMISSIONS")
marks: $(SETUP) ## the written half: a sheet for levels, their sums, and a page to mark by: make marks OUT=class
	@$(PY) -m classroom.marks $(if $(OUT),"$$OUT",class)
gradescope: $(SETUP) ## autograder.zip, to upload as a Gradescope autograder
	@$(PY) -m classroom.bundle $(if $(OUT),"$$OUT/autograder.zip")
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
test: $(SETUP) ## the repository's own tests: the grader graded; of one room alone: make test ROOM=engine
	@$(PY) -m pytest $(ROOM_TESTS) -q -n auto -m "not thorough"
test-matrix: $(SETUP) ## each version of Triton that a user may bring grades the solutions and others; a table
	@$(PY) -m grader.tests.matrix
test-all: ## every test; fails where one was skipped that this machine could run; adds packages to .venv
	@$(ADD) notebooks site site-test class slurm lint && $(PY) -m pytest $(TESTS) -q -n auto --none-left-out $(if $(REST),--not-again)
budgets: $(SETUP) ## the lines of each package beside the most that budgets.toml lets it have
	@$(PY) -m grader.tests.budgets
lint: ## ruff and mypy, as the maintainers run them
	@$(ADD) lint && $(PY) -m ruff check . && $(PY) -m ruff format --check . && $(PY) -m mypy
lock: ## locks/ from pyproject.toml, for maintainers
	@command -v uv > /dev/null || { echo "make lock needs uv: pip install uv"; exit 1; }; $(if $(PYTHON),$(PYTHON),python3) locks/lock.py

##
## Options of make handout: P (the problems that are in it), OUT
## Options of make class: P, SEED, DEVICE, TARGETS, COMPILE as above; OUT=folder (class), ROSTER=roster.csv, LANES=2
##   COLUMN="Assignment 1"   in a roster of Canvas'; ONLY=s1001,s1002 grades these again; no SUBMISSIONS: the forms alone
##   SANDBOX=none            grade also where submissions cannot be put in a sandbox (bubblewrap)
##   on a cluster: ENGINE=slurm PARTITION=name GPUS=1 (of each job) ARRAY=16 (jobs at a time)
## Options of make report: SWEEP="--only P4,fast --lengths 16k"; SWEEP=--help lists them
## Options of make notebooks: NB=02 or NB="02 04", only these
