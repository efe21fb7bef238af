#!/usr/bin/env bash
# Emulates two hosts without a shared disk. A run that would lose its checkpoints must be refused
# before the first step. With --after-save and --before-resume, a run must go on with the same
# losses: on the same hosts, and after one of them has lost its disk. Skips (code 4) if namespaces
# cannot be created.
source "$(dirname "${BASH_SOURCE[0]}")/../support/cli.sh"
source "$(dirname "${BASH_SOURCE[0]}")/../support/two_hosts.sh"
trap 'remove_hosts; rm -rf "$work"' EXIT
make_hosts
# At the same path, each host sees its own disk.
mkdir "$work"/{disk,disk_of_right,store}
unshare -m mount --bind "$work/disk_of_right" "$work/disk" 2>/dev/null || skip 'no bind mounts'
sed -i "s|unshare --uts sh -c \"|unshare --uts --mount sh -c \"[ \$name = left ] \\|\\| mount --bind \
$work/disk_of_right $work/disk; |" "$work/remote_shell"

yes 'a line of text to learn from' | head -n 300 >"$work/text.txt"
# run CODE OUT FLAG...: trains with two ranks on each host.
run() {
  local want=$1 out=$2
  shift 2
  timeout -k 5 100 "${from_left[@]}" $(mpirun_of_hosts) --map-by node -np 4 "$BIN_DIR/train_lm" \
    --data "$work/text.txt" --layers 1 --width 32 --heads 2 --seq-len 16 --micro-batch 1 --zero 1 \
    --threads 1 --steps 8 --out "$out" "$@" >"$work/output" 2>&1
  local code=$?
  [[ $code -eq $want ]] || fail "$*: exit code $code, expected $want"
}
# Each host prints the error.
one_error() {
  [[ $(sed -n 's/ (rank [0-9] of 4)$//; /^error: /p' "$work/output" | sort -u | wc -l) -eq 1 ]] ||
    fail 'not one error'
}
says() { grep -qF -- "$1" "$work/output" || fail "no '$1'"; }
files() { (cd "$1" && ls -d checkpoints/step_*/* 2>/dev/null | grep -c shard_); }
losses() { sed -nE 's/^\{"step": ([0-9]+), .*"loss_bits": ("[0-9a-f]*").*/\1 \2/p' "$1/metrics.jsonl"; }

# ---- Without a word about it ----

run 64 "$work/disk/out" --save-every 2
says "--out $work/disk/out is not one folder for all hosts: right"
says 'rank 0 on left'
one_error
grep -q 'step 1/' "$work/output" && fail 'it trained'
[[ -e $work/disk_of_right/out ]] && fail 'the right host has a folder'
find "$work/disk" -name '.seen*' | grep -q . && fail 'markers are left'
run 0 "$work/disk/none" --no-save
run 0 "$work/shared" --save-every 4  # a disk that both hosts see

# ---- Each host with its own ----

upload='mkdir -p $0/$SHALE_STEP && cp $SHALE_CHECKPOINT/* $0/$SHALE_STEP/ && echo $SHALE_HOST $SHALE_STEP >>$0/log'
upload="sh -c '$upload' $work/store"
own=(--resume auto --save-every 2 --after-save "$upload")
out=$work/disk/own
run 0 "$out" "${own[@]}" --before-resume true
cmp -s <(losses "$out") <(losses "$work/shared") || fail 'other losses'
[[ $(files "$work/disk/own") == 4 && $(files "$work/disk_of_right/own") == 4 ]] ||
  fail 'a host has other files than those of its ranks, of two checkpoints'
grep -q '"hosts":\["left","right","left","right"\]' "$out"/checkpoints/step_00000008/manifest.json ||
  fail 'the manifest does not name the hosts'
for host in left right; do
  [[ $(tail -n 1 <(grep "^$host" "$work/store/log")) == "$host 8" ]] || fail "$host: not uploaded"
done
[[ $(ls "$work/store/8" | grep -c shard_) -eq 4 ]] || fail 'the store lacks files'

# resume NAME STEP: resumes from a step, although newer ones exist, and checks that the losses are
# the same.
resume() {
  echo "$1"
  rm -rf "$work"/disk{,_of_right}/own/checkpoints/step_0000000[78]
  run 0 "$out" "${own[@]}" --before-resume "$2"
  says "resumed from $out/checkpoints/step_0000000$3"
  cmp -s <(losses "$out") <(losses "$work/shared") || fail "$1: other losses"
}
resume 'same hosts' true 6
# The right host is replaced, so the files of its ranks exist only in the store.
rm -rf "$work"/disk{_of_right/own,/own/checkpoints/step_0000000{8,6/shard_0000[13]*}}
run 65 "$out" "${own[@]}" --before-resume true
says 'which host right wrote'
one_error
fetch="mkdir -p \$SHALE_OUT/checkpoints/step_00000006; cp $work/store/6/* \$SHALE_OUT/checkpoints/step_00000006/"
resume 'one host from the store' "$fetch" 6
# Rank 0's host is replaced.
rm -rf "$work/disk/own/checkpoints"
resume 'the first host from the store' "$fetch" 6

finish
