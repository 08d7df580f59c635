#!/usr/bin/env bash
# Measure how busy this machine's CPUs keep one GPU: run `gpu.py` in one call of less than nine minutes.
#
#     benchmarks/gpu.sh WHEELS [OPTIONS OF gpu.py]
#
# It is for a machine with Python 3.11 and PyTorch with CUDA, but without Ray and a network. WHEELS is a folder of wheels
# with the versions of constraints*.txt. Make it on a machine with a package index:
#
#     pip download --dest WHEELS --no-deps -r constraints.txt -r constraints-extras.txt -r constraints-bench.txt
#
# PYTHON names another interpreter with torch (default: python3.11, otherwise python3). The script installs into a folder
# that it removes at the end, and uses the machine's PyTorch as it is.
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
# Installed packages stay, torch above all, so the constraints name all packages except torch and its dependencies.
sed -n 's/^\([A-Za-z0-9._-]*==[^ ;]*\).*/\1/p' constraints.txt constraints-extras.txt constraints-bench.txt |
    grep -v -i -E '^(torch==|numpy==|sympy==|networkx==|mpmath==|filelock==|fsspec==|jinja2==|markupsafe==|typing[-_]extensions==|setuptools==)' \
        >"$place/constraints.txt"
"$place/env/bin/python" -m pip install --quiet --no-index --find-links "$wheels" --constraint "$place/constraints.txt" \
    setuptools simplejpeg opencv-python-headless
"$place/env/bin/python" -m pip install --quiet --no-index --find-links "$wheels" --constraint "$place/constraints.txt" \
    --no-build-isolation --editable .
echo "installed in $((SECONDS - began)) s"
"$place/env/bin/python" benchmarks/gpu.py --seconds "$((510 - (SECONDS - began)))" "$@"
