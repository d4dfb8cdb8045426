# Every target is one command; `make` alone prints the lines here and in instructors.mk that have `##`.
# Values go by the environment: no shell reads a folder's name, and make does not expand what stands in it.
SIZES := N D HQ HKV NQ BLOCK_Q BLOCK_K CAUSAL WINDOW SINKS MASK DTYPE ROWS COLUMNS LENGTHS PAGE SINK
OPTIONS := P SUBMISSION CASE DEVICE SEED OUT TARGETS COMPILE SWEEP NB SUBMISSIONS ROSTER COLUMN ONLY \
           LANES ENGINE SHOW PROGRAM PARTITION GPUS ARRAY ROOM HINTS SANDBOX VERBOSE PIP_ARGS PYTHON COURSE PROMPT TOKENS $(SIZES)
$(foreach name,$(OPTIONS),$(eval override $(name) := $$(value $(name))))
export SIZES $(OPTIONS)
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

.DEFAULT_GOAL := help
.PHONY: help setup doctor grade watch try hint show profile generate jupyter

help:
	@awk -F ' ## ' '$(if $(wildcard instructors.mk),/cases as tests of pytest/ {next}) /^[a-z-]+:.* ## / {sub(/:.*/, "", $$1); printf "make %-11s %s\n", $$1, $$2} sub(/^## ?/, "")' $(MAKEFILE_LIST)

# Each of these is a command of `python -m grader`, which takes make's variables from the environment.
grade watch try hint show profile doctor: $(SETUP)
	@$(PY) -m grader $@ --from-make

grade: ## grade problems/; everything it needs is set up first
watch: ## grade again whenever a module is saved: make watch P=6
try: ## your scores, weights and output beside the right ones, on small tensors: make try P=6
hint: ## where to look, a question, what to read, ...: one hint more each time: make hint P=6
show: ## draw one case, passed or not: make show P=6 CASE="ragged tail"
profile: ## look inside a kernel, on a GPU with Nsight Compute: make profile P=4
generate: $(SETUP) ## a small language model writes with your kernels: make generate PROMPT="def "
	@$(PY) -m model.generate --from-make
jupyter: ## open the notebooks, to turn their knobs
	@$(ADD) notebooks && $(PY) -m jupyter lab notebooks
setup: ## only set up .venv
	@python3 grader/commands/environment.py
doctor: ## what this machine offers: sandbox, GPU, compiler, versions; and what to install

##
## Options of make grade, make hint, make show and make profile:
##   P=3 or P=3,5-7          only these problems; P=w1,x1 are warm-ups and labs, for no points
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
## Options of make try: P, SUBMISSION, DEVICE, SEED as above; N=8 D=16 HQ=4 HKV=2 BLOCK_Q=16 BLOCK_K=16 WINDOW=3 SINKS=1
##                         DTYPE=float16 CAUSAL=yes; SHOW=scores,row_max PROGRAM=0 (the kernel's variables, tile by tile)
##                         for x4 LENGTHS="9 5" NQ=2 PAGE=4 SINK=normal; for w2 and w3 ROWS=3 COLUMNS=300
##                         for x1 also MASK="documents 3 5", "causal", "causal 4 1" (window, sinks)
## Options of make generate: SUBMISSION, DEVICE, PROMPT="def ", TOKENS=20, P=5 (the prompt goes through P5, P6 or P7)
## Options of every target:
##   PYTHON=python3          use this interpreter as it is, install nothing
##   PIP_ARGS="..."          passed to pip (docs/students.md: saving gigabytes on a machine without a GPU)

# What only instructors and maintainers use; a handout for students has no such file.
-include instructors.mk
ifeq ($(wildcard instructors.mk),)
.PHONY: test
test: $(SETUP) ## the same cases as tests of pytest
	@$(PY) -m pytest grader --submission problems -q
endif
