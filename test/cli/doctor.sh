#!/usr/bin/env bash
# Tests shale doctor: its text output, the same as JSON, and the exit code that says whether the
# machine can train.
source "$(dirname "${BASH_SOURCE[0]}")/../support/cli.sh"
shown=("$work/out")

shale=$BIN_DIR/shale

variables=()  # NAME=value; set only for shale doctor
run() {  # arguments: CODE ARGUMENT...
  local want=$1
  shift
  timeout 60 env "${variables[@]}" "$shale" "$@" >"$work/out" 2>&1
  local code=$?
  [[ $code -eq $want ]] || fail "$*: exit code $code, expected $want"
}
has() { for text in "$@"; do grep -qF -- "$text" "$work/out" || fail "no '$text'"; done; }

run 0 doctor
has 'CPU' 'cores to use' 'memory' 'ulimit -n' '/dev/shm' 'TMPDIR' 'GPU' 'oneDNN' 'Training can run'
has '2 ranks start and exchange data, with MPI_THREAD_MULTIPLE'

run 0 doctor --json --quick
has '"can_train": true' '"name": "memory"' '"state": "ok"'
grep -q 'ranks start' "$work/out" && fail '--quick starts ranks'
[[ $("$JSON_VALUE" "$work/out" /can_train) == true ]] || fail 'not JSON, or without can_train'

# Runs benchmarks. Each line must have a verdict, even the lines on axes of ranks.
run 0 doctor --quick --bench --ranks 2 --tensor 2 --folder "$work"
for line in 'memory' 'GEMM fp32' 'GEMM bf16' 'disk' 'axis tensor'; do
  grep -qE "^  (ok|warning) +$line .*[0-9]" "$work/out" || fail "no figure and verdict: $line"
done
has 'all-reduce of 8 B' 'a checkpoint of GPT-2 124M takes'
[[ -z $(find "$work" -name '.shale-doctor-*') ]] || fail 'the file on the disk was left'
run 0 doctor --quick --bench --ranks 4 --pipeline 2 --folder "$work"
has 'axis pipeline' 'axis shard'
run 0 doctor --quick --bench --ranks 3 --tensor 2 --folder "$work/nowhere"
has 'nowhere' 'tensor=2'

# Each missing requirement is named, with a way to fix it.
variables=(TMPDIR="$work/nowhere")
run 69 doctor --quick
has "FAILED" "$work/nowhere: No such file" 'fix: set TMPDIR to' 'Training cannot run here: 1 failure'
variables=(PATH=/nowhere)
run 69 doctor
has 'two ranks' 'mpirun: No such file' 'fix: apt-get install openmpi-bin'
variables=()
(
  ulimit -n 512
  run 0 doctor --quick
  has 'fix: ulimit -n 65536' 'with'
  exit "$failures"
) || failures=$((failures + 1))

# Finds files left behind by ranks that were killed together with their mpirun.
left=/dev/shm/vader_segment.$(hostname).shale-doctor-test.$$
trap 'rm -rf "$work" "$left"' EXIT
head -c 8192 /dev/zero >"$left"
run 0 doctor --quick
has 'left by MPI' 'that no process uses' 'fix: while no mpirun is starting: rm /dev/shm/vader_segment.*'
rm "$left"

# Simulates a machine without NVLink: two GPUs behind a switch on one socket, two on the other.
add_gpu "$work/boxes" pci0000:16/0000:16:01.0/0000:17:00.0/0000:18:00.0/0000:19:00.0 0 0-3 16 - \
  'NVIDIA GeForce RTX 4090'
add_gpu "$work/boxes" pci0000:16/0000:16:01.0/0000:17:00.0/0000:18:01.0/0000:1a:00.0 0 0-3 16 - \
  'NVIDIA GeForce RTX 4090'
add_gpu "$work/boxes" pci0000:ac/0000:ac:01.0/0000:ad:00.0 1 4-7 16 - 'NVIDIA GeForce RTX 4090'
add_gpu "$work/boxes" pci0000:ac/0000:ac:03.0/0000:ae:00.0 1 4-7 8 - 'NVIDIA GeForce RTX 4090'
variables=(SHALE_MACHINE="$work/boxes")
run 0 doctor --quick
has '4, which SHALE_MACHINE simulates' \
  '0000:19:00.0, NUMA node 0 with CPUs 0-3, PCIe 4.0 x16, 15.7 GB/s each way at most while all' \
  '0000:ad:00.0, NUMA node 1 with CPUs 4-7, PCIe 4.0 x16, 31.5 GB/s each way at most' \
  'PCIe 4.0 x8, 15.7 GB/s each way at most; the GPU supports 16 lanes' \
  'fix: use a slot with all lanes' \
  'to 1: one switch, no peer access; to 2, 3: two NUMA nodes, no peer access' \
  'to 3: a root complex, no peer access' \
  'refuses peer access between all GPUs (NVIDIA GeForce RTX 4090): data goes through host memory' \
  'at 15.7 GB/s each way at most: an all-reduce of 1 GB takes 63 ms or more' \
  'reduces inside each of 2 NUMA nodes first, then once between them'
# Simulates three GPUs that can access each other's memory only behind a switch. They cannot be
# split equally between two nodes.
add_gpu "$work/switch" pci0000:16/0000:16:01.0/0000:17:00.0/0000:18:00.0/0000:19:00.0 0 0-3 16 1 \
  L40S
add_gpu "$work/switch" pci0000:16/0000:16:01.0/0000:17:00.0/0000:18:01.0/0000:1a:00.0 0 0-3 16 0 \
  L40S
add_gpu "$work/switch" pci0000:ac/0000:ac:01.0/0000:ad:00.0 1 4-7 16 - L40S
variables=(SHALE_MACHINE="$work/switch")
run 0 doctor --quick
has 'to 1: one switch, peer access; to 2: two NUMA nodes, no peer access' \
  'refuses peer access between some GPUs' '--comm mpi ignores NUMA nodes'
# Simulates unknown or invalid values in /sys.
echo 'no number' >"$work/switch/sys/devices/pci0000:ac/0000:ac:01.0/0000:ad:00.0/numa_node"
rm -r "$work/switch/sys/bus/pci/devices/0000:19:00.0"
run 0 doctor --quick
has '0000:19:00.0, NUMA node unknown' 'PCIe of unknown width and speed' 'to 1: unknown, peer access' \
  'the NUMA nodes of some GPUs are unknown'
# Simulates a GPU for which the build has no kernels, next to one without bf16.
add_gpu "$work/old" pci0000:16/0000:16:01.0/0000:17:00.0 0 0-3 16 - 'Tesla V100' 70
add_gpu "$work/old" pci0000:16/0000:16:03.0/0000:19:00.0 0 0-3 16 - 'Tesla T4' 75
add_gpu "$work/old" pci0000:16/0000:16:02.0/0000:18:00.0 0 0-3 16 - L4
variables=(SHALE_MACHINE="$work/old")
run 0 doctor --quick
has 'L4, compute 8.9; fp8 with --fp8-scaling tensor' 'Tesla T4, compute 7.5; no bf16: use --dtype fp16' \
  'Tesla V100, compute 7.0: no kernels for cuda:0 of compute capability 7.0, expected 7.5' \
  'fix: use --device cpu, or list the other GPUs'
variables=(SHALE_MACHINE="$work/nowhere")
run 64 doctor --quick
has 'error: SHALE_MACHINE: cannot read'
variables=()

run 64 docter
has "unknown tool 'docter'; did you mean doctor?"
run 64 pretrain
has "unknown tool 'pretrain'; use shale train lm"
run 64 export
has "unknown tool 'export'; use shale ckpt export"
run 64
has 'Usage: shale TOOL' 'expected a tool'
run 64 doctor --jsn
has 'did you mean --json?'
run 0 --version
has 'shale (Shale)'
run 0 doctor --help
has '--quick'

finish
