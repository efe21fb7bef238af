#!/usr/bin/env bash
# Tests shale run: what it restarts and what not, how it forwards stop requests, and that a run
# whose ranks are killed finishes with every step once.
source "$(dirname "${BASH_SOURCE[0]}")/../support/cli.sh"

shale=$BIN_DIR/shale
yes 'a line of text to learn from' | head -n 300 >"$work/text.txt"
code_is() { [[ $code -eq $1 ]] || fail "exit code $code, expected $1"; }
has() { for text in "$@"; do grep -qF -- "$text" "$work/output" || fail "no '$text'"; done; }

run() {
  timeout -k 5 120 "$shale" run "$@" >"$work/output" 2>&1
  code=$?
}

# ---- What is restarted ----

starts() { wc -l <"$work/starts"; }
script() { echo "echo start >>$work/starts; $1"; }

# check CODE STARTS SCRIPT: SCRIPT is started STARTS times and ends with CODE.
check() {
  : >"$work/starts"
  run --max-restarts 2 --delay 0.05 -- sh -c "$(script "$3")"
  code_is "$1"
  [[ $(starts) -eq $2 ]] || fail "'$3' was started $(starts) times, expected $2"
}
check 0 1 'exit 0'
check 76 3 'exit 76'
has 'exit code 76 (ranks disagree, or one was lost)' '2 restarts brought no progress; giving up'
check 137 3 'kill -9 $$'
check 9 3 'exit 9'  # MPICH's mpiexec returns 9 if SIGKILL ends a rank
check 143 3 'kill -15 $$'
check 64 1 'exit 64'
check 75 1 'exit 75'
check 77 2 'exit 77'  # restarted once, because faulty hardware may be the cause

: >"$work/starts"
run --max-restarts 1 --delay 0.05 -- sh -c "$(script 'exit 74')"  # a disk may recover
code_is 74
has 'disk error' 'starting again in 0.4 s' '4 restarts brought no progress'
[[ $(starts) -eq 5 ]] || fail "a disk error was started $(starts) times, expected 5"

# If the launcher returns a code of its own, status.json decides, unless an earlier start wrote it.
cat >"$work/train_fake" <<'END'
#!/bin/sh
echo start >>"$3"
[ "$4" = stale ] && exit 9
cat >"$2/status.json" <<JSON
{"state": "failed", "step": 3, "checkpoint_step": null, "checkpoint": "", "exit_code": 65, "message": "x"}
JSON
exit 9
END
chmod +x "$work/train_fake"
mkdir "$work/fake"
for of in 'new 65 1' 'stale 9 2'; do
  read -r word wanted times <<<"$of"
  : >"$work/starts"
  run --max-restarts 1 --delay 0.05 -- "$work/train_fake" --out "$work/fake" "$work/starts" $word
  code_is "$wanted"
  [[ $(starts) -eq $times ]] || fail "a $word status: $(starts) starts, expected $times"
done

# If a process is killed for lack of memory, the log says so. Needs a memory control group that can
# be made here.
group=/sys/fs/cgroup/memory$(sed -n 's/^[0-9]*:memory://p' /proc/self/cgroup)/shale-$$
[[ -d /sys/fs/cgroup/memory ]] || group=/sys/fs/cgroup$(sed -n 's/^0:://p' /proc/self/cgroup)/shale-$$
limit=memory.limit_in_bytes
[[ -d /sys/fs/cgroup/memory ]] || limit=memory.max
if mkdir "$group" 2>/dev/null && echo $((64 << 20)) 2>/dev/null >"$group/$limit"; then
  (echo $BASHPID >"$group/cgroup.procs" &&
    "$shale" run --max-restarts 0 -- sh -c 'head -c 300m /dev/zero | tail -c 300m >/dev/null; exit 137') \
    >"$work/output" 2>&1
  code=$?
  code_is 137
  has 'killed by signal 9, after the kernel killed a process here (out of memory)'
else
  echo 'skipped: no memory control group can be made'
fi
rmdir "$group" 2>/dev/null

run -- "$work/no_such_program"
code_is 127
run --elastic -- mpirun -np 2 train_lm
code_is 64
has 'expected mpirun with --host or --hostfile'
run -- mpirun --host 'a,-oProxyCommand=x' train_lm
code_is 64
has "begin with '-'"
run mpirun
code_is 64

# A host that does not answer is left out together with its ranks. A script in place of mpirun
# prints its arguments.
cat >"$work/mpirun" <<'END'
#!/bin/sh
echo "launched: $*"
END
cat >"$work/remote_shell" <<'END'
#!/bin/sh
[ "$1" = there ]
END
chmod +x "$work/mpirun" "$work/remote_shell"
run --elastic -- "$work/mpirun" --mca plm_rsh_agent "$work/remote_shell" -np 4 \
  --host there:2,gone:2 train_lm --data x
code_is 0
has 'host gone does not answer' "launched: --mca plm_rsh_agent $work/remote_shell -np 2 --host there:2 train_lm"
# If the run's last message says that a host's GPU has failed, that host is left out.
cat >"$work/mpirun" <<END
#!/bin/sh
echo "launched: \$*"
[ -e "$work/failed" ] && exit 0
touch "$work/failed"
mkdir -p "$work/gpus"
cat >"$work/gpus/status.json" <<STATUS
{"state": "failed", "step": 3, "checkpoint": "", "exit_code": 69, "message":
 "rank 3: cuda: cudaStreamSynchronize: cudaErrorECCUncorrectable; broken GPU 0000:17:00.0 of host there.example.org, see Xid"}
STATUS
exit 69
END
printf '#!/bin/sh\nexit 0\n' >"$work/remote_shell"
run --elastic --delay 0.05 -- "$work/mpirun" --mca plm_rsh_agent "$work/remote_shell" -np 4 \
  --host there:2,other:2 train_lm --data x --out "$work/gpus"
code_is 0
has 'host there has a broken GPU' '-np 2 --host other:2 train_lm'
# shale run asks a host without a slot count for its cores, here two with two threads each. It keeps
# the other words of the host's line.
cat >"$work/mpirun" <<'END'
#!/bin/sh
echo "launched: $*"
while [ "$1" != --hostfile ]; do shift; done
sed 's/^/line: /' "$2"
END
cat >"$work/remote_shell" <<'END'
#!/bin/sh
[ "$1" = there ] || exit 1
shift
lscpu() { printf '# Core,Socket\n0,0\n0,0\n1,0\n1,0\n'; }
nproc() { echo 4; }
eval "$*"
END
printf 'there port = 22  # ours\ngone\n' >"$work/hosts"
run --elastic -- "$work/mpirun" --mca plm_rsh_agent "$work/remote_shell" -np 9 \
  --hostfile "$work/hosts" train_lm --data x
code_is 0
has 'host gone does not answer' '-np 2 --hostfile' 'line: there port = 22  # ours'
grep -q 'line: gone' "$work/output" && fail 'the lost host is still in the host file'
kept=$(sed -n 's/.*--hostfile \([^ ]*\).*/\1/p' "$work/output")
[[ -n $kept && ! -e $kept ]] || fail "the host file '$kept' is left behind"
sed -i 's/lscpu() .*/lscpu() { echo command not found; }/; s/nproc() .*/nproc() { :; }/' \
  "$work/remote_shell"
run --elastic -- "$work/mpirun" --mca plm_rsh_agent "$work/remote_shell" --hostfile "$work/hosts" \
  train_lm --data x
code_is 64
has "expected 'slots=' for host there, or its cores"
run --elastic -- "$work/mpirun" --mca plm_rsh_agent "$work/remote_shell" --host gone train_lm
code_is 69
has 'no host responds'

# ---- shale train: the command that it makes ----

train() {
  PATH=$work:$PATH timeout -k 5 120 "$shale" train "$@" >"$work/output" 2>&1
  code=$?
}
cat >"$work/mpirun" <<'END'
#!/bin/sh
[ "$1" = --version ] && echo 'mpirun (Open MPI) 4.1.4'
echo "launched: $*"
END
root=''
[[ $(id -u) -eq 0 ]] && root=' --allow-run-as-root'
train lm --data x --ranks 2 --lr=1
code_is 0
has "launched: -np 2 --bind-to none --map-by :OVERSUBSCRIBE$root $BIN_DIR/train_lm --data x --lr=1"
train image --ranks=3 --nodes a,b --data x
code_is 0
has "launched: -np 6 --bind-to none --host a:3,b:3$root $BIN_DIR/train_image --data x"
train lm --data x --ranks 2 --print-config
code_is 0
has '"data": "x"'
train lm --help batch
code_is 0
has '--micro-batch'
train --help
code_is 0
has '--ranks' '--nodes'
# refused CODE WORDS ARGUMENTS...: the arguments are refused with these words.
refused() {
  train "${@:3}"
  code_is "$1"
  has "$2"
}
refused 64 'expected lm, image or diffusion, found nothing'
refused 64 "expected lm, image or diffusion, found '--data'" --data x
refused 64 "found 'llm'" llm --data x
refused 64 '--ranks' lm --data x --ranks 0
refused 64 'expected all or a number' lm --data x --gpus some
refused 64 'leave out --ranks' lm --data x --gpus 2 --ranks 3
refused 64 'expected --nodes' lm --data x --ranks 2 --elastic
refused 64 '--data' lm
if [[ ! -e /dev/nvidia0 ]]; then
  refused 69 'found 0 GPUs on this host' lm --data x --gpus all
  refused 69 'found 0 GPUs on this host' lm --data x --gpus 2
  # Before other nodes join.
  SHALE_TOKEN=a-secret-of-this-test refused 69 'found 0 GPUs on this host' lm --data x --gpus all \
    --nodes 2 --join-timeout 5
fi
printf '#!/bin/sh\nexit 1\n' >"$work/mpirun"
refused 69 'expected mpirun of Open MPI, found none; install openmpi-bin' lm --data x --ranks 2
printf '#!/bin/sh\necho HYDRA build details:\n' >"$work/mpirun"
refused 69 'expected mpirun of Open MPI, found another one; install' lm --data x --ranks 2
rm "$work/mpirun"

# ---- Training ----

train=(mpirun --oversubscribe --bind-to none -np 2 "$BIN_DIR/train_lm" --data "$work/text.txt"
  --layers 1 --width 32 --heads 2 --seq-len 16 --micro-batch 1 --threads 1 --save-every 20)
rows() { cat "$1/metrics.jsonl" 2>/dev/null | wc -l; }
wait_for_rows() {  # arguments: FOLDER COUNT
  for _ in $(seq 600); do
    [[ $(rows "$1") -ge $2 ]] && return
    sleep 0.05
  done
  fail "$1 never had $2 rows"
}
# Ranks write their process numbers nowhere, so they are found as child processes of the launcher.
ranks_of() { pgrep -P "$(pgrep -P "$1" -x mpirun)" -x train_lm; }

# Every step appears once, in order, with the losses of an undisturbed run.
steps=1200
"${train[@]}" --steps $steps --out "$work/plain" >"$work/output" 2>&1 || fail 'the plain run failed'
"$shale" run --delay 0.1 -- "${train[@]}" --steps $steps --out "$work/killed" >"$work/output" 2>&1 &
supervisor=$!
for target in 150 600; do
  wait_for_rows "$work/killed" $target
  kill -9 "$(ranks_of $supervisor | shuf -n 1)"
  sleep 1.5
done
wait $supervisor
code=$?
code_is 0
has 'restart 1' 'restart 2' 'killed by signal 9'
losses() { grep -o '"step": [0-9]*, "loss": [^,]*, "loss_bits": "[^"]*"' "$1/metrics.jsonl"; }
cmp -s <(losses "$work/plain") <(losses "$work/killed") || fail 'the rows differ from the plain run'
[[ $(losses "$work/killed" | wc -l) -eq $steps ]] || fail "not $steps rows"

# The host file is read again at each start, so hosts that were added meanwhile are used.
echo 'localhost slots=1' >"$work/hosts"
grown=(mpirun --bind-to none --hostfile "$work/hosts" "${train[@]:6}" --global-batch 4 --reproducible
  --steps 600)
"${grown[@]:5}" --out "$work/not_grown" >"$work/output" 2>&1 || fail 'the run that does not grow failed'
"$shale" run --elastic --delay 0.1 -- "${grown[@]}" --out "$work/grown" >"$work/output" 2>&1 &
supervisor=$!
wait_for_rows "$work/grown" 100
echo 'localhost slots=2' >"$work/hosts"
kill -9 "$(ranks_of $supervisor)"
wait $supervisor
code=$?
code_is 0
has '1 rank on cpu' '2 ranks on cpu'
cmp -s <(losses "$work/not_grown") <(losses "$work/grown") || fail 'growth changes or repeats steps'

train lm --ranks 2 --data "$work/text.txt" --layers 1 --width 32 --heads 2 --seq-len 16 \
  --micro-batch 1 --threads 1 --steps 30 --out "$work/trained"
code_is 0
has '2 ranks on cpu' 'done: 30 steps'
train lm --data "$work/text.txt" --layers 1 --width 32 --heads 2 --seq-len 16 --micro-batch 1 \
  --threads 1 --steps 30 --out "$work/trained_alone"
code_is 0
has '1 rank on cpu' 'done: 30 steps'

# A stop request reaches the ranks, which save a checkpoint; nothing is restarted.
"$shale" run -- "${train[@]}" --steps 1000000 --out "$work/stopped" >"$work/output" 2>&1 &
supervisor=$!
wait_for_rows "$work/stopped" 50
kill -TERM $supervisor
wait $supervisor
code=$?
code_is 75
has 'exit code 75 (stopped after saving)'
grep -q '"state": "saved"' "$work/stopped/status.json" || fail 'status.json does not say saved'

finish
