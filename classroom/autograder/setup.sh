#!/usr/bin/env bash
# Gradescope runs this once, as root, when it builds the autograder's image. PyTorch is large: minutes.
# On images without a GPU, pytorch.org names a package index with CPU builds ("Linux, Pip, CPU"); with its address,
#   export PIP_ARGS="--extra-index-url ADDRESS"
# here saves gigabytes.
set -euo pipefail
cd "$(dirname "$0")"
export DEBIAN_FRONTEND=noninteractive
apt-get update
apt-get install -y python3 python3-pip python3-venv
apt-get install -y bubblewrap || echo "no bubblewrap: submissions run with plain process limits" >&2
python3 grader/commands/environment.py
