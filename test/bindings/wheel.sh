#!/usr/bin/env bash
# A wheel: what is in it, that equal inputs make equal bytes, and that it installs into a fresh
# environment of Python, without network, and trains there on one rank and on two.
source "$(dirname "${BASH_SOURCE[0]}")/../support/cli.sh"
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)

"$PYTHON" -c 'import venv, ensurepip' 2>/dev/null ||
  { echo 'skipped: python3 has no venv with pip; install the package python3-venv'; exit 4; }
unset PYTHONPATH SHALE_LIBRARY

build() {  # FOLDER
  "$PYTHON" "$root/bindings/python/build_wheel.py" --library "$LIBRARY" --version "$VERSION" \
    --out "$1" >"$work/output" 2>&1 || fail "build_wheel.py: exit code $?"
}
build "$work/first"
build "$work/second"
wheel=shale-$VERSION-py3-none-linux_x86_64.whl
cmp "$work/first/$wheel" "$work/second/$wheel" || fail "two wheels of the same differ"

"$PYTHON" -m venv "$work/env" >"$work/output" 2>&1 || fail "venv: exit code $?"
"$work/env/bin/pip" install --no-index --no-deps --disable-pip-version-check \
  "$work/first/$wheel" >"$work/output" 2>&1 || fail "pip install: exit code $?"

cd "$work" || exit 1
env/bin/python -c 'import shale, sys; sys.exit(not shale._c._name.startswith(sys.prefix))' \
  >"$work/output" 2>&1 || fail "the environment does not use the wheel's library"
for ranks in 1 2; do
  timeout 120 mpirun --oversubscribe --bind-to none -np $ranks env/bin/python \
    "$root/examples/python/train.py" "$root/README.md" 4 >"$work/output" 2>&1
  code=$?
  [[ $code -eq 0 && $(grep -c '^step . | loss ' "$work/output") -eq 4 ]] ||
    fail "train.py on $ranks ranks: code $code"
done
env/bin/pip uninstall -y shale >"$work/output" 2>&1 || fail "pip uninstall: exit code $?"
[[ -z $(find env -path '*shale*' -not -name '*.pyc') ]] || fail "uninstalling leaves files"

finish
