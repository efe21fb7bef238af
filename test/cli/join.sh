#!/usr/bin/env bash
# Tests shale join, which runs over two hosts without sshd. The hosts are network namespaces of this
# machine. Both have the machine's name, and interfaces like those of container bridges, which lead
# nowhere. Skips (code 4) if namespaces cannot be made.
source "$(dirname "${BASH_SOURCE[0]}")/../support/cli.sh"
source "$(dirname "${BASH_SOURCE[0]}")/../support/two_hosts.sh"
trap 'remove_hosts; rm -rf "$work"' EXIT
bridges=2
make_hosts
unset RANK WORLD_SIZE LOCAL_RANK MASTER_ADDR MASTER_PORT

shale=$BIN_DIR/shale
head=10.213.77.1:29500
export SHALE_TOKEN=a-secret-of-this-test OMPI_MCA_btl_vader_single_copy_mechanism=none
yes 'a line of text to learn from' | head -n 300 >"$work/text.txt"
flags=(--data "$work/text.txt" --layers 1 --width 32 --heads 2 --seq-len 16 --micro-batch 1
  --threads 1 --reproducible)
# The hosts have different folders for temporary files.
mkdir "$work/tmp"
on_left() {
  exec nsenter "--net=/run/netns/$left" env "TMPDIR=$work/tmp" timeout -k 5 300 "$@"
}
on_right() {
  exec nsenter "--net=/run/netns/$right" unshare --mount \
    sh -c 'mount -t tmpfs tmpfs "$0" && exec timeout -k 5 300 "$@"' "$work/tmp" "$@"
}
shown=("$work/head" "$work/node")

code_of() { wait "$1"; code=$?; [[ $code -eq $2 ]] || fail "$3: exit code $code, expected $2"; }
has() { grep -qF -- "$2" "$work/$1" || fail "no '$2' in $1"; }
await() {  # FILE WORDS: waits until the file has the words
  for _ in $(seq 1200); do grep -qF -- "$2" "$work/$1" 2>/dev/null && return; sleep 0.05; done
  fail "$1 never had '$2'"
}
await_rows() {  # NAME COUNT
  for _ in $(seq 1200); do [[ $(rows "$1" 2>/dev/null | wc -l) -ge $2 ]] && return; sleep 0.05; done
  fail "$1 never had $2 rows"
}

common=("${flags[@]}")
trains alone 2 --steps 8

# ---- A node that joins late; losses are those of two ranks on one host ----

(on_left "$shale" train lm --nodes 2 --ranks 1 "${flags[@]}" --steps 8 --out "$work/two" \
  --listen 10.213.77.1:29500) \
  >"$work/head" 2>&1 &
head_pid=$!
await head "shale join $head"
has head '1 of 2 nodes have joined'
(on_right "$shale" join $head) >"$work/node" 2>&1 &
code_of $! 0 'the node'
code_of $head_pid 0 'the head'
same two alone
has head '2 ranks on cpu'
[[ -z $(ls -A "$work/tmp") ]] || fail 'a folder is left behind'

# ---- Variables of torchrun: one command for all processes ----

for rank in 3 1 2 0; do  # ranks 0 and 1 are on the left
  side=$([[ $rank -lt 2 ]] && echo on_left || echo on_right)
  (RANK=$rank WORLD_SIZE=4 LOCAL_RANK=$((rank % 2)) MASTER_ADDR=10.213.77.1 MASTER_PORT=29511 \
    $side "$shale" join -- train lm --ranks 1 "${flags[@]}" --steps 8 --out "$work/torch") \
    >"$work/torch.$rank" 2>&1 &
  pids[rank]=$!
done
shown=("$work"/torch.[0-3])
for rank in 0 1 2 3; do code_of ${pids[rank]} 0 "rank $rank"; done
same torch alone
shown=("$work/head" "$work/node")

# ---- A node that leaves is named; the run goes on when it joins again ----

(on_left "$shale" run --nodes 2 --delay 0.1 -- mpirun --bind-to none --map-by node -np 2 \
  "$BIN_DIR/train_lm" "${flags[@]}" --steps 24 --save-every 4 --out "$work/left") \
  >"$work/head" 2>&1 &
head_pid=$!
(on_right "$shale" join $head) >"$work/node" 2>&1 &
node=$!
await_rows left 6
kill -9 "$(pgrep -P $node -x shale)"
await head '(10.213.77.2) has left'
await head '1 of 2 nodes have joined'
(on_right "$shale" join $head) >"$work/node" 2>&1 &
node=$!
code_of $head_pid 0 'the head of a node that left'
code_of $node 0 'the node that joined again'
trains undisturbed 2 --steps 24
same left undisturbed

# ---- A node that is asked to stop: the run saves ----

(on_right "$shale" join $head) >"$work/node" 2>&1 &
node=$!
(on_left "$shale" train lm --nodes 2 --ranks 1 "${flags[@]}" --steps 1000000 --out "$work/stopped") \
  >"$work/head" 2>&1 &
head_pid=$!
await_rows stopped 3
kill -TERM "$(pgrep -P $node -x shale)"
code_of $head_pid 75 'a stopped head'
code_of $node 75 'a stopped node'
has head 'is asked to stop'
grep -q '"state": "saved"' "$work/stopped/status.json" || fail 'status.json does not say saved'

# ---- What is refused ----

(on_left "$shale" train lm --nodes 2 "${flags[@]}" --out "$work/none") \
  >"$work/head" 2>&1 &
head_pid=$!
await head 'shale join'
has head " or $head"  # addresses of bridges come first
refused() {  # CODE WORDS COMMAND...
  (on_right "${@:3}") >"$work/node" 2>&1
  code=$?
  [[ $code -eq $1 ]] || fail "${*:3}: exit code $code, expected $1"
  [[ $(grep -c '^error: ' "$work/node") -eq 1 ]] || fail "${*:3}: not one error"
  has node "$2"
}
SHALE_TOKEN=another-secret-of-this-test refused 64 "token differs from the head's" "$shale" join $head
has head "refused 10.213.77.2: its token differs from the head's"
grep -q -- 'secret-of-this' "$work/head" "$work/node" && fail 'a token is printed'
(unset SHALE_TOKEN; refused 64 'expected a secret in SHALE_TOKEN' "$shale" join $head; exit $failures) ||
  failures=$?
SHALE_TOKEN=short refused 64 'expected at least 16 characters, found 5' "$shale" join $head
refused 69 'Connection refused' "$shale" join 10.213.77.1:29599 --join-timeout 1
refused 64 'expected HOST:PORT' "$shale" join 10.213.77.1
refused 64 'found neither' "$shale" join
refused 64 'found both' "$shale" join $head -- train lm
MASTER_ADDR=a RANK=0 WORLD_SIZE=2 refused 64 'this is rank 0' "$shale" join
(on_left "$shale" train lm --nodes 2 "${flags[@]}" --out "$work/none") >"$work/node" 2>&1
[[ $? -eq 69 ]] || fail 'a second head is not refused'
has node 'choose a port with --listen'
(on_left "$shale" join $head) >"$work/node" 2>&1
[[ $? -eq 64 ]] || fail 'the host of the head joins'
kill -TERM "$(pgrep -P $head_pid -x shale)"
code_of $head_pid 75 'a head that is stopped while it waits'
(on_left "$shale" train lm --nodes 2 --join-timeout 1 "${flags[@]}" --out "$work/none") \
  >"$work/head" 2>&1
[[ $? -eq 69 ]] || fail 'a head without nodes'
has head '1 of 2 nodes have joined (this host)'
"$shale" train lm --nodes 2 --elastic --data x >"$work/output" 2>&1
[[ $? -eq 64 ]] || fail '--elastic with --nodes 2'

finish
