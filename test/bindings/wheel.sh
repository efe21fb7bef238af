#!/usr/bin/env bash
# Tests the Python wheel: its contents; that equal inputs give equal bytes; that building fails if a
# program needs a newer glibc than the wheel states; that programs refuse another MPI; and that the
# wheel installs into a fresh environment without network. There it trains with its programs on two
# ranks, and from Python on one.
source "$(dirname "${BASH_SOURCE[0]}")/../support/cli.sh"
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)

"$PYTHON" -c 'import venv, ensurepip' 2>/dev/null ||
  { echo 'skipped: python3 has no venv with pip: install the package python3-venv'; exit 4; }
unset PYTHONPATH SHALE_LIBRARY

cmake --install "$BUILD" --component runtime --prefix "$work/tree" >"$work/output" 2>&1 ||
  { fail "cmake --install: exit code $?"; finish; }
build() {  # arguments: FOLDER FLAGS...
  "$PYTHON" "$root/bindings/python/build_wheel.py" --tree "$work/tree" --version "$VERSION" \
    --out "$@" >"$work/output" 2>&1
}
build "$work/old" --glibc 2.17 && fail "--glibc 2.17: exit code 0"
grep -qE '^build_wheel.py: shale/\S+ needs \S+ of glibc 2\.\S+, expected at most 2\.17: ' \
  "$work/output" || fail "--glibc 2.17 does not name the symbol"
build "$work/first" || fail "build_wheel.py: exit code $?"
build "$work/second" || fail "build_wheel.py: exit code $?"
wheel=$(basename "$work/first/shale-$VERSION"*-py3-none-manylinux_2_36_x86_64.whl)
cmp "$work/first/$wheel" "$work/second/$wheel" || fail "two wheels of the same differ"

"$PYTHON" -m venv "$work/env" >"$work/output" 2>&1 || fail "venv: exit code $?"
"$work/env/bin/pip" install --no-index --disable-pip-version-check \
  "$work/first/$wheel" >"$work/output" 2>&1 || fail "pip install: exit code $?"

cd "$work" || exit 1
env/bin/python -c 'import shale, sys; sys.exit(not shale._c._name.startswith(sys.prefix))' \
  >"$work/output" 2>&1 || fail "the environment does not use the wheel's library"
package=$(echo "$work"/env/lib/python3*/site-packages/shale)
for file in "$package"/bin/* "$package/lib/libshale_c.so.1"; do
  ldd "$file" | grep -E "lib(dnnl|fmt|gomp|hwy|spdlog|tomlplusplus)" | grep -vF "$package" \
    >"$work/output" && fail "$(basename "$file") does not use libraries of the wheel"
done
for program in shale train_lm train_image train_diffusion; do
  [[ $("env/bin/$program" --version 2>&1) == *"$VERSION"* ]] || fail "$program --version"
done
trains() {  # arguments: RANKS COMMAND...
  local ranks=$1
  shift
  launch "$ranks" "$@" >"$work/output" 2>&1
  local code=$?
  [[ $code -eq 0 && $(grep -cE '^step +2.* loss ' "$work/output") -ge 1 ]] ||
    fail "$* on $ranks ranks: code $code"
}
trains 1 env/bin/python "$root/examples/python/train.py" "$root/README.md" 2
trains 2 env/bin/train_lm --data "$root/README.md" --steps 2

# Libraries in the folders of NVIDIA's pip packages come before others.
if [[ -f $package/lib/libshale_cuda.so ]]; then
  nccl=$(dirname "$package")/nvidia/nccl/lib/libnccl.so.2
  mkdir -p "$(dirname "$nccl")"
  "${CC:-cc}" -shared -o "$nccl" -x c /dev/null
  LD_DEBUG=libs env/bin/shale doctor >"$work/debug" 2>&1
  grep -F "calling init:" "$work/debug" | grep -qF "/nvidia/nccl/lib/libnccl.so.2" ||
    fail "the wheel does not use libraries of NVIDIA's packages"
  for file in "$package"/bin/shale "$package"/lib/libshale.so.* "$package/lib/libshale_cuda.so"; do
    readelf -d "$file" | grep -qF '../../nvidia/nccl/lib' ||
      fail "$(basename "$file") does not search the folders of NVIDIA's packages"
  done
  rm -r "$(dirname "$package")/nvidia"
fi

# refused NAME EXPECTED COMMAND...: the command must end with exit code 69 and one line that
# contains EXPECTED
refused() {
  local name=$1 expected=$2
  shift 2
  "$@" >"$work/output" 2>&1
  local code=$?
  [[ $code -eq 69 && $(wc -l <"$work/output") -eq 1 && $(<"$work/output") == *"$expected"* ]] ||
    fail "$name: exit code $code, expected 69 and '$expected' in one line"
}
export SIGN  # SIGN: the variable that the other MPI's mpirun sets
SIGN=$(env/bin/python -c '
import shale_wheel as w
(other,) = w.ABIS.keys() - {w.ABI}
print(w.ABIS[other][3])')
refused "mpirun of another MPI" ", found mpirun of " env "$SIGN=2" env/bin/train_lm
refused "no MPI" ", found no MPI library: install " env/bin/python -c '
import sys, shale_wheel as w
w.ABIS = {k: (v[0], ("libmpi.so.0",), *v[2:]) for k, v in w.ABIS.items()}
sys.argv = ["train_lm"]
w.main()'

env/bin/pip uninstall -y shale >"$work/output" 2>&1 || fail "pip uninstall: exit code $?"
[[ -z $(find env -path '*shale*' -not -name '*.pyc') ]] || fail "uninstalling leaves files"

finish "all passed: $(du -h "$work/first/$wheel" | cut -f 1) $wheel"
