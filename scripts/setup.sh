#!/usr/bin/env bash
# Create .venv and install the project into it; does nothing when nothing has changed.
#   PYTHON       interpreter whose site-packages, torch included, are used (a vendor's container)
#   TORCH_INDEX  wheel index for torch (another CUDA, ROCm)
# What was asked for once holds until something else is asked for.
set -euo pipefail
cd "$(dirname "$0")/.."

venv=.venv
choice="$venv/setup-choice"
stamp="$venv/setup-stamp"
# The reference implementation's transformers would replace the one that an own environment brings.
extras="dev,reference"

wanted="${PYTHON:-}|${TORCH_INDEX:-}"
if [ -n "${PYTHON:-}" ] && ! "$PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
    echo "setup: PYTHON=$PYTHON does not run, or is older than 3.11" >&2
    exit 2
fi
if [ -f "$choice" ]; then
    if [ "$wanted" = "|" ]; then
        wanted=$(cat "$choice")
    elif [ "$wanted" != "$(cat "$choice")" ]; then
        echo "setup: another interpreter or index is asked for, building $venv anew" >&2
        rm -rf "$venv"
    fi
elif [ "$wanted" != "|" ] && [ -d "$venv" ]; then
    rm -rf "$venv"
fi
own_python=${wanted%%|*}
torch_index=${wanted#*|}

digest=$( (cat pyproject.toml constraints.txt "$0"; ls -d kernels/*/ tasks/*/ 2>/dev/null || true;
           pwd; echo "$wanted") | cksum)
if [ -x "$venv/bin/python" ] && [ "$(cat "$stamp" 2>/dev/null)" = "$digest" ]; then
    exit 0
fi

# Print the first interpreter that is new enough.
find_python() {
    local name
    for name in python3 python3.13 python3.12 python3.11 python; do
        if "$name" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            command -v "$name"
            return
        fi
    done
    echo "setup: Python 3.11 or newer is needed (give one with PYTHON=…)" >&2
    return 2
}

constraints=constraints.txt
if [ -n "$own_python" ]; then
    if [ ! -x "$venv/bin/python" ]; then
        "$own_python" -m venv --system-site-packages "$venv"
        # The packages of an interpreter that is itself in a virtual environment are not "system".
        target=$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
        "$own_python" scripts/own_packages.py > "$target/own_packages.pth"
    fi
    extras="dev"
    constraints="$venv/kept-versions.txt"
    "$venv/bin/python" scripts/kept_versions.py > "$constraints"
elif [ ! -x "$venv/bin/python" ]; then
    interpreter=$(find_python)
    "$interpreter" -m venv "$venv"
fi
printf '%s' "$wanted" > "$choice"

pip=("$venv/bin/python" -m pip install --disable-pip-version-check --quiet --constraint "$constraints")
if [ -n "$torch_index" ]; then
    "${pip[@]}" --index-url "$torch_index" torch
fi
isolation=()
if "$venv/bin/python" -c 'import setuptools as s; assert int(s.__version__.split(".")[0]) >= 77' \
    2>/dev/null; then
    isolation=(--no-build-isolation)
fi
echo "setup: installing into $venv" >&2
"${pip[@]}" ${isolation[@]+"${isolation[@]}"} --editable ".[$extras]"
printf '%s' "$digest" > "$stamp"
