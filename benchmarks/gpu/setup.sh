#!/usr/bin/env bash
# Set up the kit on a bare machine with a CUDA GPU: agentload and vLLM in FOLDER, within nine minutes or not at all.
#
#   benchmarks/gpu/setup.sh FOLDER [WHEELS]      then FOLDER/bin/python -m benchmarks.gpu.run look
#
# Packages come from what pip is configured for. WHEELS is a folder of wheels in its place, for a machine without a network; a wheel that
# had to travel in parts (NAME.whl.0, NAME.whl.1, …) is joined first. What the machine's own Python has, torch first of all, is used.
set -euo pipefail

folder=${1:?usage: setup.sh FOLDER [WHEELS]}
wheels=${2:-}
house=$(cd "$(dirname "$0")/../.." && pwd)
wanted=("$house[tokenizers]" nvidia-ml-py)

failed() {
  printf 'error: %s\nhint: %s\n' "$1" "$2" >&2
  exit 1
}

nvidia-smi -L || failed "no NVIDIA driver answers" "the rehearsal needs none: docs/real-gpu.md"
python=$(command -v python3.12 || command -v python3.11 || command -v python3) || failed "no Python" "3.11 or newer"
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || failed "$("$python" --version) is too old" "3.11 or newer"
[ -x "$folder/bin/python" ] || "$python" -m venv --system-site-packages "$folder"
"$folder/bin/python" -c 'import vllm' 2>/dev/null || wanted+=(vllm)

options=(--quiet --disable-pip-version-check)
if [ -n "$wheels" ]; then
  for first in "$wheels"/*.whl.0; do
    [ -e "$first" ] || continue
    for ((part = 0; ; part++)); do [ -e "${first%.0}.$part" ] && cat "${first%.0}.$part" || break; done > "${first%.0}"
  done
  options+=(--no-index --find-links "$wheels")
fi
timeout 540 "$folder/bin/python" -m pip install "${options[@]}" "${wanted[@]}" ||
  failed "not every package could be had within nine minutes" "run it again: what was downloaded is kept; or bring wheels"
"$folder/bin/vllm" --version || "$folder/bin/python" -m vllm.entrypoints.cli.main --version
