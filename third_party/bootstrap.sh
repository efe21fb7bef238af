#!/usr/bin/env bash
# Installs the distribution packages that Shale's build needs and that this machine lacks.
set -euo pipefail

usage() {
  cat <<'USAGE'
Usage: third_party/bootstrap.sh [--minimal] [--list] [--help]

Installs, with apt-get, the packages that are missing. Needs root, or sudo, only if some are. Where
there is nvcc without cuobjdump and nvdisasm, with which a test reads what nvcc makes, these come
from NVIDIA's wheels, by pip, into third_party/cuda_tools.

  --minimal   only what building and running the training programs needs
  --list      print the packages, one a line, and change nothing
USAGE
}

# The compiler and build tools, MPI, then the libraries: GEMM, SIMD, log, JSON, TOML, compressed
# text, images.
packages=(
  g++ cmake ninja-build
  libopenmpi-dev openmpi-bin
  libdnnl-dev libhwy-dev libspdlog-dev nlohmann-json3-dev libtomlplusplus-dev zlib1g-dev
  libzstd-dev libpng-dev libjpeg-dev
)
# For tests, benchmarks and development: the tests list processes (ps, pgrep), simulate two hosts on
# one machine (ip), and make a web site of the documentation (pandoc).
development_packages=(git catch2 procps iproute2 pandoc)

minimal=false
list=false
for argument in "$@"; do
  case "$argument" in
    --minimal) minimal=true ;;
    --list) list=true ;;
    -h | --help) usage; exit 0 ;;
    *) echo "bootstrap.sh: unknown argument '$argument'" >&2; usage >&2; exit 64 ;;
  esac
done
if ! $minimal; then packages+=("${development_packages[@]}"); fi

cuda_tools=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/cuda_tools
# lacks_disassembler: succeeds if there is an nvcc, but no disassembler beside it or in cuda_tools.
lacks_disassembler() {
  local nvcc folder
  nvcc=$(command -v nvcc || command -v /usr/local/cuda/bin/nvcc) || return 1
  for folder in "$(dirname "$nvcc")" "$cuda_tools/nvidia/cu13/bin"; do
    if [[ -x $folder/cuobjdump && -x $folder/nvdisasm ]]; then return 1; fi
  done
}
with_cuda_tools=false
if ! $minimal && lacks_disassembler; then
  with_cuda_tools=true
  if ! python3 -m pip --version >/dev/null 2>&1; then packages+=(python3-pip); fi
fi
if $list; then printf '%s\n' "${packages[@]}"; exit 0; fi

if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
  echo "bootstrap.sh: this is not a Debian-like system; install by hand what Debian calls:" \
    "${packages[*]}" >&2
  exit 69
fi

# dpkg-query fails if it does not know one of the names, but still prints the packages that it
# knows.
installed=$(dpkg-query --show --showformat='${Package} ${db:Status-Status}\n' \
  "${packages[@]}" 2>/dev/null | sed -n 's/ installed$//p' || true)
missing=()
for package in "${packages[@]}"; do
  if ! grep -qxF -- "$package" <<<"$installed"; then missing+=("$package"); fi
done

if [[ ${#missing[@]} -gt 0 ]]; then
  echo "bootstrap.sh: installing ${missing[*]}"
  as_root=()
  if [[ $(id -u) -ne 0 ]]; then
    if ! command -v sudo >/dev/null; then
      echo "bootstrap.sh: not root, and there is no sudo; run as root: apt-get install" \
        "${missing[*]}" >&2
      exit 69
    fi
    as_root=(sudo)
  fi
  # sudo drops environment variables, so env sets this one.
  apt=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q -y -o Dpkg::Use-Pty=0)
  "${apt[@]}" update </dev/null
  "${apt[@]}" install --no-install-recommends -o DPkg::Lock::Timeout=120 "${missing[@]}" </dev/null
fi

if $with_cuda_tools; then
  echo "bootstrap.sh: installing cuobjdump and nvdisasm into $cuda_tools"
  # pip is given the system's certificates, which may include those of a company's proxy; pip has
  # its own.
  certificates=()
  if [[ -d /etc/ssl/certs ]]; then certificates=(--cert /etc/ssl/certs); fi
  python3 -m pip install --quiet --root-user-action=ignore "${certificates[@]}" \
    --no-deps --require-hashes --only-binary=:all: \
    --target "$cuda_tools" --requirement "$(dirname "$cuda_tools")/cuda_tools.txt"
fi
