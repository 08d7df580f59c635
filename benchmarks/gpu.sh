#!/usr/bin/env bash
# One GPU kept busy by this machine's CPUs: everything that `gpu.py` measures, in one call of under nine minutes.
#
#     benchmarks/gpu.sh WHEELS [OPTIONS OF gpu.py]
#
# For a machine that has Python 3.11 and PyTorch with CUDA but no Ray, and no network: WHEELS is a folder of wheels, of
# the versions of constraints*.txt. Make it where there is an index:
#
#     pip download --dest WHEELS --no-deps -r constraints.txt -r constraints-extras.txt -r constraints-bench.txt
#
# PYTHON names another interpreter that has torch (default: python3.11, else python3). What is installed goes into a
# folder that is removed at the end; the machine's PyTorch is used as it is.
set -euo pipefail
cd "$(dirname "$0")/.."
wheels=$(realpath "${1:?expected a folder of wheels}")
shift
python=${PYTHON:-$(command -v python3.11 || command -v python3)}
began=$SECONDS
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT

"$python" -c 'import torch; print("torch", torch.__version__, "CUDA", torch.version.cuda, torch.cuda.is_available())'
"$python" -m venv --system-site-packages "$place/env"
# What is there already stays, torch above all; so the constraints name all but torch and its own needs.
sed -n 's/^\([A-Za-z0-9._-]*==[^ ;]*\).*/\1/p' constraints.txt constraints-extras.txt constraints-bench.txt |
    grep -v -i -E '^(torch==|numpy==|sympy==|networkx==|mpmath==|filelock==|fsspec==|jinja2==|markupsafe==|typing[-_]extensions==|setuptools==)' \
        >"$place/constraints.txt"
"$place/env/bin/python" -m pip install --quiet --no-index --find-links "$wheels" --constraint "$place/constraints.txt" \
    setuptools simplejpeg opencv-python-headless
"$place/env/bin/python" -m pip install --quiet --no-index --find-links "$wheels" --constraint "$place/constraints.txt" \
    --no-build-isolation --editable .
echo "installed in $((SECONDS - began)) s"
"$place/env/bin/python" benchmarks/gpu.py --seconds "$((510 - (SECONDS - began)))" "$@"
