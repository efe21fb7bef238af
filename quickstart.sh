#!/usr/bin/env bash
# Trains a small GPT on two ranks of a bare machine. Installs missing packages, builds the training
# program, and trains on the headers of the C++ standard library, a text that every machine with a
# compiler has. Then prints a sample of the model's text.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

usage() {
  cat <<'USAGE'
Usage: ./quickstart.sh [--help] [TRAIN_LM_FLAG...]

Given flags of train_lm override those of this script: ./quickstart.sh --steps 50
The result is in out/quickstart/; a run there is deleted first.
USAGE
}

case "${1:-}" in
  -h | --help) usage; exit 0 ;;
esac

# ==== The training run. ====
train_flags=(
  --model nano
  --steps 1500
  --micro-batch 4
  --lr 4e-3
  --eval-every 500
  --eval-samples 512
  --sample-tokens 600
  --sample-prompt $'namespace std\n{\n'
)
# ===========================

ranks=2
out=out/quickstart
compile_core_seconds=500  # time to compile on one core, measured on an Intel Xeon

phase_names=()
phase_seconds=()
# phase NAME COMMAND...: runs the command and stores its time.
phase() {
  local name=$1 start=$SECONDS
  shift
  echo "==== $name"
  "$@"
  phase_names+=("$name")
  phase_seconds+=($((SECONDS - start)))
}

# Builds only for this machine's CPU, without GPU kernels, tests and benchmarks, which take most of
# an hour to compile in a full build (cmake --preset release).
configure() { cmake --preset quick; }

build() {
  echo "compiling takes about $((compile_core_seconds / $(nproc) / 60 + 1)) minutes on $(nproc) cores"
  cmake --build --preset quick
}

train() {
  local threads=$(($(nproc) / ranks)) headers
  if [[ $threads -lt 1 ]]; then threads=1; fi

  # -H prints the headers that the compiler opens. The path at depth one shows their folder.
  headers=$(printf '#include <vector>\n' | g++ -x c++ -fsyntax-only -H - 2>&1 |
    sed -n 's|^\. \(/.*\)/vector$|\1|p')
  if [[ ! -d $headers ]]; then
    echo "quickstart.sh: g++ does not say where its headers are" >&2
    return 66
  fi

  if [[ $(id -u) -eq 0 ]]; then
    # Containers run as root; Open MPI then needs these two variables.
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
  fi
  rm -rf "$out"
  mpirun -np "$ranks" --oversubscribe --bind-to none \
    build/quick/bin/train_lm --data "$headers" --out "$out" --threads "$threads" \
    "${train_flags[@]}" "$@" </dev/null
}

phase "packages" third_party/bootstrap.sh --minimal
phase "configure" configure
phase "build" build
phase "train" train "$@"

echo "==== done in $SECONDS s"
for i in "${!phase_names[@]}"; do
  printf '%-10s %4d s\n' "${phase_names[i]}" "${phase_seconds[i]}"
done
