#!/usr/bin/env bash
# All that is measured on one GPU, in one go: three full runs of the miniature for its baseline, the
# eager arm under another batching (the noise floor of equality), and the arms side by side.
#
#     scripts/measure_gpu.sh OUT [NAME]       OUT: a folder for runs and tables; NAME: gpu
#
# PYTHON names the interpreter (.venv/bin/python). Accept the runs with `evalsuite baseline accept`.
set -euo pipefail
out=$(mkdir -p "$1" && cd "$1" && pwd)
name=${2:-gpu}
cd "$(dirname "$0")/.."
python=${PYTHON:-.venv/bin/python}

for number in 1 2 3; do
    "$python" -m evalsuite run --limit all --no-judge --out "$out/run-$number"
done
mkdir -p "$out/suites"
sed 's/^  kind: mini$/  kind: mini\n  concurrency: 48/' suites/glm53-mini.yaml > "$out/suites/glm53-mini.yaml"
"$python" -m evalsuite run "$out/suites/glm53-mini.yaml" --arms eager --limit all --no-judge \
    --out "$out/eager-48"
"$python" benchmarks/full_runs.py "$out"/run-[123] --name "full-$name" --out "$out/results"
"$python" benchmarks/equality.py "$out/run-1" --other "$out/eager-48" --name "equality-$name" \
    --out "$out/results"
"$python" benchmarks/engine.py --name "engine-$name" --out "$out/results"
