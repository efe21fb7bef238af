#!/usr/bin/env bash
# Tests the checks that ranks make before training: different options or builds, a slow connection,
# and disk space for checkpoints and for MPI's files. Also tests that comparing the parameters of
# replicas during training finds no difference.
source "$(dirname "${BASH_SOURCE[0]}")/../support/cli.sh"

yes 'a line of text to learn from' | head -n 200 >"$work/text.txt"
train=$BIN_DIR/train_lm
flags=(--data "$work/text.txt" --layers 1 --width 32 --heads 2 --seq-len 16 --micro-batch 1
  --steps 6 --out "$work/out")
launcher=(mpirun)
nproc_here=$(env -u OMP_NUM_THREADS nproc)  # nproc obeys this variable

expect() {  # arguments: CODE TEXT... -- ARGUMENT OF MPIRUN...
  local want=$1 texts=()
  shift
  while [[ $1 != -- ]]; do texts+=("$1"); shift; done
  shift
  rm -rf "$work/out"
  timeout -k 5 60 "${launcher[@]}" --oversubscribe --bind-to none "$@" >"$work/output" 2>&1
  local code=$? bad=''
  [[ $code -eq $want ]] || bad+=" exit code $code, expected $want;"
  for text in "${texts[@]}"; do grep -qF -- "$text" "$work/output" || bad+=" no '$text';"; done
  [[ $want -eq 0 || $(grep -c '^error: ' "$work/output") -eq 1 ]] || bad+=' not one error line;'
  [[ -z $bad ]] && return
  echo "FAILED: $*:$bad"
  sed 's/^/    /' "$work/output"
  failures=$((failures + 1))
}
lacks() {  # arguments: TEXT
  grep -qF -- "$1" "$work/output" || return
  echo "FAILED: there is '$1'"
  sed 's/^/    /' "$work/output"
  failures=$((failures + 1))
}

expect 76 'options differ between ranks: rank 0 has "lr": 0.1, rank 2 has "lr": 0.2' -- \
  -np 2 "$train" "${flags[@]}" --lr 0.1 : -np 1 "$train" "${flags[@]}" --lr 0.2
expect 0 -- -np 1 "$train" "${flags[@]}" --threads 1 : -np 1 "$train" "${flags[@]}" --threads 2

# The same program with only the linker's build ID changed.
if command -v objcopy >/dev/null; then
  objcopy --remove-section .note.gnu.build-id "$train" "$work/train_other"
  expect 76 "the program's build: rank 0 has" 'rank 1 has' -- \
    -np 1 "$train" "${flags[@]}" : -np 1 "$work/train_other" "${flags[@]}"
fi

# ---- Bandwidth ----

# Ranks that share cores take turns, so their bandwidth is not measured.
expect 0 'step 6/6' -- -np $((2 * $(nproc) + 1)) "$train" "${flags[@]}" --threads 1
lacks 'all-reduce of'

# ---- Cores, and the learning rate ----

expect 0 "$((nproc_here + 1)) ranks share the" 'start at most' 'step 6/6' -- \
  -np $((nproc_here + 1)) "$train" "${flags[@]}" --threads 1
[[ $(grep -c 'ranks share the' "$work/output") -eq 1 ]] || { echo 'FAILED: not one warning'; failures=1; }
expect 0 '--lr 0.5 is far from the' 'lower it' 'step 6/6' -- -np 1 "$train" "${flags[@]}" --lr 0.5
lacks 'ranks share the'
expect 0 'raise it' 'step 6/6' -- -np 1 "$train" "${flags[@]}" --lr 1e-7
expect 0 'step 6/6' -- -np 1 "$train" "${flags[@]}" --lr 4e-3
lacks 'far from'
expect 0 'step 6/6' -- -np 1 "$train" "${flags[@]}" --lr 0.5 --optimizer sgd
lacks 'far from'
expect 77 'more than 10 times its lowest mean' 'lower --lr (now' 'not finite' -- \
  -np 1 "$train" "${flags[@]}" --steps 60 --lr 30 --clip 0 --warmup-steps 20

# ---- Memory ----

# The plan of a batch that fits nowhere ends the run before its first step.
started=$(date +%s%N)
expect 71 'memory: this run needs' "on $(hostname) (1 rank), found" ' free; each of these options is enough' \
  '--micro-batch' -- -np 1 "$train" "${flags[@]}" --micro-batch 100000000
echo "a refused run took $((($(date +%s%N) - started) / 1000000)) ms"
[[ -e $work/out ]] && { echo 'FAILED: it wrote to --out'; failures=1; }
expect 71 "on $(hostname) (2 ranks), found" '--micro-batch' -- \
  -np 2 "$train" "${flags[@]}" --micro-batch 100000000
for program in train_image train_diffusion; do
  [[ -x $BIN_DIR/$program ]] || continue
  expect 71 'memory: this run needs' '--micro-batch' -- -np 1 "$BIN_DIR/$program" --data shapes \
    --made-images 8 --pixels 32 --micro-batch 4194304 --out "$work/out"
done
# A control group's limit counts like the host's memory, and the suggested micro-batch fits it. Uses
# version 2 of control groups, or else version 1.
group=/sys/fs/cgroup/shale_test_$$ limit=memory.max
[[ -e /sys/fs/cgroup/cgroup.controllers ]] ||
  group=/sys/fs/cgroup/memory/shale_test_$$ limit=memory.limit_in_bytes
if mkdir "$group" 2>/dev/null && echo 256M >"$group/$limit" 2>/dev/null; then
  launcher=(sh -c "echo \$\$ >$group/cgroup.procs && exec \"\$@\"" sh mpirun)
  expect 71 'memory: this run needs' 'MiB free' '--micro-batch' -- \
    -np 1 "$train" "${flags[@]}" --micro-batch 65536
  suggested=$(sed -n 's/^  \(--micro-batch [0-9]*\) .*/\1/p' "$work/output")
  # shellcheck disable=SC2086
  expect 0 'step 2/2' -- -np 1 "$train" "${flags[@]}" $suggested --steps 2
  launcher=(mpirun)
else
  echo 'skipped: a control group with a limit, which takes the right to make one'
fi
rmdir "$group" 2>/dev/null

# ---- Disk space ----

# on_disk SIZE: mounts a disk of this size at $work/disk.
on_disk() {
  launcher=(unshare -m sh -c "mount -t tmpfs -o size=$1 tmpfs $work/disk && exec \"\$@\"" sh mpirun)
}
mkdir "$work/disk"
if unshare -m mount -t tmpfs tmpfs "$work/disk" 2>/dev/null; then
  # The model has a million bytes of parameters. A checkpoint has three million, with AdamW's two
  # moments.
  wide=("${flags[@]}" --width 128 --threads 1 --out "$work/disk/out")
  on_disk 2m
  expect 74 'disk/out has 2.0 MiB free, expected 2.' 'MiB for a checkpoint' -- -np 2 "$train" "${wide[@]}"
  expect 0 'step 6/6' -- -np 2 "$train" "${wide[@]}" --no-save
  expect 0 'step 6/6' -- -np 2 "$train" "${wide[@]}" --optimizer sgd --momentum 0
  # The disk has space for one checkpoint, but two exist at a time: training starts after a warning.
  on_disk 4m
  expect 74 'expected 5.' 'for 2 checkpoints' 'saved step 3' 'checkpoint of step 6' -- \
    -np 2 "$train" "${wide[@]}" --save-every 3 --keep 1
  # mpirun needs 8 MiB for itself.
  on_disk 12m
  expect 0 "$work/disk has" 'MiB free, expected 16.3 MiB for MPI' \
    'set TMPDIR to another folder' 'step 6/6' -- \
    -x TMPDIR="$work/disk" -np 2 env TMPDIR="$work/disk" "$train" "${flags[@]}" --threads 1
else
  echo 'skipped: disks of a given size, which take the right to mount'
fi
launcher=(mpirun)

# ---- Replicas ----

for stage in 0 1 2; do
  expect 0 'step 6/6' -- -np 2 "$train" "${flags[@]}" --zero $stage --check-replicas 2 --threads 1
done
expect 0 'step 6/6' -- \
  -np 4 "$train" "${flags[@]}" --zero 3 --shard-ranks 2 --check-replicas 3 --threads 1

finish
