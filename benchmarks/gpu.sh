#!/usr/bin/env bash
# Measure how busy this machine's CPUs keep one GPU: run `gpu.py` in one call of at most nine minutes.
#
#     benchmarks/gpu.sh [WHEELS] [OPTIONS OF gpu.py]
#
# It is for a machine with Python 3.11 to 3.13 and PyTorch with CUDA, but without a network. WHEELS is a folder of wheels
# with the versions of constraints*.txt. Make it on a machine with a package index and the same Python:
#
#     pip download --dest WHEELS --no-deps -r constraints.txt -r constraints-extras.txt -r constraints-bench.txt
#
# They are installed into a folder that is removed at the end, beside the machine's PyTorch. Leave out WHEELS if Ray and
# the others are there, or in a folder that PYTHONPATH names from / on (`pip install --target`). PYTHON names another
# interpreter than the first with torch, and LIMIT_SECONDS another limit than 540.
set -euo pipefail
limit=${LIMIT_SECONDS:-540}
wheels=
if [[ $# -gt 0 && $1 != -* ]]; then
    wheels=$(realpath "$1")
    shift
fi
cd "$(dirname "$0")/.."
python=${PYTHON:-}
for candidate in python3.11 python3.12 python3.13 python3; do
    if [[ -z $python ]] && "$candidate" -c 'import torch' 2>/dev/null; then python=$candidate; fi
done
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT

"${python:?expected a Python with torch, found none}" -c \
    'import sys, torch; print("Python", sys.version.split()[0], "torch", torch.__version__, torch.cuda.is_available())'
if [[ -n $wheels ]]; then
    "$python" -m venv --system-site-packages "$place/env"
    python=$place/env/bin/python
    # Installed packages stay, torch above all, so the constraints name all except torch and its dependencies.
    sed -n 's/^\([A-Za-z0-9._-]*==[^ ;]*\).*/\1/p' constraints.txt constraints-extras.txt constraints-bench.txt |
        grep -v -i -E '^(torch==|numpy==|sympy==|networkx==|mpmath==|filelock==|fsspec==|jinja2==|markupsafe==|typing[-_]extensions==|setuptools==)' \
            >"$place/constraints.txt"
    install=("$python" -m pip install --quiet --no-index --find-links "$wheels" --constraint "$place/constraints.txt")
    "${install[@]}" setuptools simplejpeg opencv-python-headless
    "${install[@]}" --no-build-isolation --editable .
fi
export PYTHONPATH=$PWD${PYTHONPATH:+:$PYTHONPATH}
"$python" -c 'import ray, overnight' || { echo "expected a folder of wheels, or Ray on PYTHONPATH" >&2 && exit 2; }
echo "ready after $SECONDS s"
timeout --signal INT --kill-after 5 "$((limit - 5 - SECONDS))" \
    "$python" benchmarks/gpu.py --seconds "$((limit - 10 - SECONDS))" "$@"
