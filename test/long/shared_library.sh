#!/usr/bin/env bash
# Tests the shared library (SHALE_SHARED). Builds it for CPUs, installs it, and links a program with
# it, which is compiled by one command, without CMake, and with no development package except MPI's.
# Then does the same by find_package(Shale), which must not look for what the library contains.
# Prints the library's size and the times of compiling and linking. Takes most of an hour on two
# cores, or minutes with ccache. Exits with 4 if this machine cannot run it.
# Usage: test/long/shared_library.sh BUILD_DIR   (a build that is there: BUILD_SHARED=folder)
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
value() { sed -n "s/^$1:[A-Z]*=//p" "$build/CMakeCache.txt"; }
build=$1
[[ -z $(value SHALE_SANITIZE) ]] || { echo "skipped: a sanitizer is on"; exit 4; }
cxx=$(value CMAKE_CXX_COMPILER) generator=$(value CMAKE_GENERATOR)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "FAILED: $*"; exit 1; }
seconds() {  # seconds COMMAND...: wall time, in tenths
  local start=$EPOCHREALTIME
  "$@" || fail "$*"
  awk -v a="$start" -v b="$EPOCHREALTIME" 'BEGIN { printf "%.1f", b - a }'
}

shared=${BUILD_SHARED:-$build/shared}
cmake -S "$root" -B "$shared" -G "$generator" -DCMAKE_BUILD_TYPE=Release -DSHALE_SHARED=ON \
  -DCMAKE_CXX_COMPILER="$cxx" -DSHALE_CUDA=OFF -DSHALE_BUILD_TESTS=OFF -DSHALE_BUILD_BENCH=OFF \
  >"$work/log" || fail "configure: $(tail -n 5 "$work/log")"
cmake --build "$shared" >"$work/log" || fail "build: $(tail -n 20 "$work/log")"
prefix=$work/prefix
cmake --install "$shared" --prefix "$prefix" >"$work/log" || fail "install: $(tail "$work/log")"
lib=$(dirname "$(find "$prefix" -name libshale.so)")

# A program of 20 lines that trains, on any number of ranks.
cat >"$work/main.cpp" <<'CPP'
#include <shale/shale.h>

struct Line : shale::Module {
  Line() : layer(this, "layer", 1, 1, shale::Init::zeros()) {}
  shale::Tensor forward(const shale::Tensor& x) {
    return run(x, [this](const shale::Tensor& in) { return layer.forward(in); });
  }
  shale::nn::Linear layer;
};

int main(int argc, char** argv) {
  return shale::comm::run(argc, argv, [](shale::comm::World& world) {
    shale::Context context({.device = {}});
    const auto group = world.group({}, context.backend());
    Line line;
    shale::comm::fully_shard(line, context, *group);
    shale::optim::AdamW optimizer(shale::comm::optim_shards(line), {});
    optimizer.prepare(context, 0, 0.1f);
    const shale::Tensor x = shale::from_host<float>(context, std::vector<float>{1}, {1, 1});
    backward(shale::comm::mean_over_ranks(line, mean(line.forward(x))));
    optimizer.step();
    return shale::to_host<float>(line.forward(x)).front() < 0 ? 0 : 1;
  });
}
CPP
compile=$(seconds "$cxx" -std=c++20 -O2 -I"$prefix/include" -c "$work/main.cpp" -o "$work/main.o")
link=$(seconds "$cxx" "$work/main.o" -o "$work/main" -L"$lib" -lshale -Wl,-rpath,"$lib")
"$work/main" || fail "the program: $?"
MPIRUN=$(value MPIEXEC_EXECUTABLE)
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
"$MPIRUN" --oversubscribe -np 2 "$work/main" || fail "the program on two ranks: $?"

# The program may include headers of Shale, of the compiler and of the C library. It must link
# Shale's library, but not the libraries inside it.
"$cxx" -std=c++20 -I"$prefix/include" -M "$work/main.cpp" | tr -s ' \\' '\n' | grep '^/' |
  grep -vE "^($prefix/include/shale/|$work/main|/usr/lib/gcc|/usr/include/(c\+\+|asm|bits|linux|gnu|sys|x86_64|[a-z0-9_-]+[.]h))" \
    >"$work/others" && fail "headers of others: $(cat "$work/others")"
readelf -d "$work/main" | sed -n 's/.*NEEDED.*\[\(.*\)\]/\1/p' |
  grep -vE '^(libshale|libstdc\+\+|libm|libgcc_s|libc|ld-linux.*)[.]so' >"$work/others" &&
  fail "libraries of others: $(cat "$work/others")"

# find_package(Shale) works even if no other package can be found.
hidden=()
for package in OpenMP spdlog fmt oneDNN Highway ZLIB Zstd PNG JPEG MPI; do
  hidden+=("-DCMAKE_DISABLE_FIND_PACKAGE_$package=ON")
done
cmake -S "$root/test/install" -B "$work/install" -G "$generator" -DCMAKE_CXX_COMPILER="$cxx" \
  -DCMAKE_PREFIX_PATH="$prefix" "${hidden[@]}" >"$work/log" 2>&1 ||
  fail "find_package: $(tail -n 5 "$work/log")"
cmake --build "$work/install" >"$work/log" || fail "build: $(tail -n 20 "$work/log")"
"$work/install/consumer" >"$work/log" || fail "consumer: $(tail -n 5 "$work/log")"
"$work/install/one_tensor" || fail one_tensor

strip --strip-unneeded -o "$work/stripped" "$lib/libshale.so"
echo "libshale.so: $(stat -Lc %s "$lib/libshale.so") bytes, stripped $(stat -c %s "$work/stripped");" \
  "a program of 20 lines: compiled in $compile s, linked in $link s, $(stat -c %s "$work/main") bytes"
