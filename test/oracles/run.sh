#!/usr/bin/env bash
# Computes reference results with other projects' libraries, in a virtual environment of its own,
# and prints them next to the stored results (<name>.txt). Tests use the stored results, without
# Python.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

case "${1:-}" in
  "" | --freeze) ;;
  *) echo "Usage: test/oracles/run.sh [--freeze]    --freeze replaces the frozen results"; exit 64 ;;
esac

venv=../../build/oracles/venv
if [[ ! -x $venv/bin/python ]]; then
  python3 -m venv "$venv"
  "$venv/bin/pip" install --quiet jax safetensors jinja2==3.1.6 transformers==5.24.0 torch \
    pyarrow==26.0.1 datasets==5.2.0 webdataset==1.0.2 onnx==1.23.2 onnxruntime==1.32.0 \
    xllamacpp==2026.10.11549
fi
status=0
for script in *.py; do
  name=${script%.py}
  "$venv/bin/python" "$script" >"$venv/$name.txt"
  if [[ ${1:-} == --freeze ]]; then cp "$venv/$name.txt" "$name.txt"; fi
  echo "$name: key, computed, frozen, relative difference"
  paste "$venv/$name.txt" "$name.txt" | awk '
    { d = $2 "" == $4 "" ? 0 : $4 + 0 == 0 ? 1 : ($2 - $4) / $4; d = d < 0 ? -d : d; print "  " $1, $2, $4, d; wrong += $1 != $3 || d > 1e-9 }
    END { exit wrong > 0 }' || status=1
done
exit $status
