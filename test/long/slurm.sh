#!/usr/bin/env bash
# Tests deploy/slurm on a Slurm cluster that this script starts, with two nodes on this machine. A
# job that reaches its time limit saves, is requeued and resumes. The same holds for a job whose
# node dies. An array of jobs trains its runs. Takes about three minutes. Exits with 4 if this
# machine cannot run it.
# Usage: test/long/slurm.sh BUILD_DIR
set -uo pipefail

bin=$(cd "$1/bin" && pwd)
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
skip() { echo "skipped: $*"; exit 4; }
for program in slurmctld slurmd srun sbatch scontrol; do
  command -v $program >/dev/null || skip "there is no $program (slurmctld, slurmd, slurm-client)"
done
[[ $(id -u) -eq 0 ]] || skip 'not root, as whom slurmd starts jobs'

work=$(mktemp -d)
failures=0
fail() {
  failures=$((failures + 1))
  echo "FAILED: $*"
  tail -n 15 "$work"/*.out "$work"/slurmctld.log 2>/dev/null | sed 's/^/    /'
}

# ---- A cluster of two nodes ----

host=$(hostname -s)
port=$((20000 + $$ % 20000))
mkdir "$work/state"
cat >"$work/slurm.conf" <<CONF
ClusterName=shale_test
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=$port
AuthType=auth/none
AuthInfo=cred_expire=5
CredType=cred/none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
MpiDefault=pmix
SlurmUser=root
SlurmdUser=root
StateSaveLocation=$work/state
SlurmctldPidFile=$work/slurmctld.pid
SlurmctldLogFile=$work/slurmctld.log
SlurmdPidFile=$work/slurmd-%n.pid
SlurmdSpoolDir=$work/spool-%n
SlurmdLogFile=$work/slurmd-%n.log
TmpFS=$work/tmp-%n
KillWait=5
SlurmdTimeout=10
ReturnToService=2
MailProg=/bin/true
NodeName=n1 NodeHostname=$host NodeAddr=127.0.0.1 Port=$((port + 1)) CPUs=2
NodeName=n2 NodeHostname=$host NodeAddr=127.0.0.1 Port=$((port + 2)) CPUs=2
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE OverSubscribe=NO
CONF
export SLURM_CONF=$work/slurm.conf PATH=$bin:$PATH
export OMPI_MCA_btl_vader_single_copy_mechanism=none OMP_NUM_THREADS=1
declare -A daemon

start_node() {  # arguments: NAME
  mkdir -p "$work/spool-$1" "$work/tmp-$1"
  slurmd -D -N "$1" >"$work/slurmd-$1.err" 2>&1 &
  daemon[$1]=$!
}

# Processes of a node's jobs: step daemons and their children.
processes_of() {  # arguments: NODE
  local file
  for file in /proc/[0-9]*/environ; do
    if grep -qz "^SLURMD_NODENAME=$1\$" "$file" 2>/dev/null &&
       grep -qz "^SLURM_CONF=$work/" "$file" 2>/dev/null; then
      basename "$(dirname "$file")"
    fi
  done
}

# A step's daemon inherits the environment of the node's daemon, by which it is found.
steps_of() {  # arguments: NODE
  local pid
  for pid in $(pgrep slurmstepd); do
    grep -q "$work/spool-$1" "/proc/$pid/maps" 2>/dev/null && echo "$pid"
    ls -l "/proc/$pid/fd" 2>/dev/null | grep -q "$work/.*-$1" && echo "$pid"
  done | sort -u
}

end_cluster() {
  scancel --state=RUNNING --state=PENDING 2>/dev/null
  sleep 2
  local node
  for node in n1 n2; do kill -9 $(processes_of $node) $(steps_of $node) 2>/dev/null; done
  kill "${daemon[@]}" 2>/dev/null
  wait 2>/dev/null
  rm -rf "$work"
}
trap end_cluster EXIT

slurmctld -D -i >"$work/slurmctld.err" 2>&1 &
daemon[control]=$!
start_node n1
start_node n2

# Retries until the command succeeds, with a limit in seconds.
await() {  # arguments: SECONDS COMMAND...
  local seconds=$1 i
  shift
  for ((i = 0; i < 2 * seconds; ++i)); do
    "$@" && return 0
    sleep 0.5
  done
  return 1
}
nodes_are_idle() { [[ $(sinfo -h -N -o '%T' 2>/dev/null | sort | uniq -c | xargs) == '2 idle' ]]; }
await 30 nodes_are_idle || { cat "$work"/*.err; skip 'two nodes do not start on this machine'; }

# ---- Jobs ----

yes 'a line of text to learn from, and some more words of it' | head -n 2000 >"$work/text.txt"
cd "$work" || exit 1

submit() {  # arguments: FILE SBATCH_FLAG... -- TRAIN_LM_FLAG...
  local file=$1 flags=()
  shift
  while [[ $1 != -- ]]; do flags+=("$1"); shift; done
  shift
  sbatch --parsable --ntasks-per-node=1 --gpus-per-node=0 --cpus-per-task=1 "${flags[@]}" \
    "$root/deploy/slurm/$file" --data "$work/text.txt" --layers 1 --width 64 --heads 2 \
    --seq-len 128 --micro-batch 4 --threads 1 --schedule constant --warmup-steps 0 --quiet "$@"
}
job_is() { [[ $(scontrol -o show job "$1" 2>/dev/null) == *"JobState=$2 "* ]]; }
restarts() { scontrol -o show job "$1" 2>/dev/null | grep -o 'Restarts=[0-9]*' | cut -d= -f2; }
has_restarted() { [[ $(restarts "$1") -ge 1 ]] && job_is "$1" RUNNING; }
steps() { grep -oE '^."step": [0-9]+, "loss"' "$1/metrics.jsonl" | tr -dc '0-9\n'; }
last_step() { steps "$1" 2>/dev/null | tail -n 1; }
has_step() { [[ $(last_step "$1") -ge $2 ]]; }
each_once() {  # arguments: OUT
  steps "$1" | awk '$1 != NR { exit 1 }' || fail "$1: not every step once"
}

# The time limit is a minute. The signal comes 5 to 35 seconds before its end.
job=$(submit train.sbatch --nodes=2 --time=1 --signal=B:USR1@5 -- --out limit --steps 10000000) ||
  fail 'sbatch --time=1'
await 120 has_restarted "$job" || fail "a job whose time is up: not started again"
grep -q '"checkpoint_step": [1-9]' limit/status.json || fail 'a job whose time is up: has not saved'
before=$(grep -oE '"checkpoint_step": [0-9]+' limit/status.json | tr -dc '0-9')
await 30 has_step limit $((before + 10)) || fail 'a job whose time is up: does not go on'
grep -q "start 1 of job $job" shale-*.out || fail 'a job whose time is up: the log is not kept'
scancel "$job"
await 30 nodes_are_idle || fail 'nodes are not free after scancel'
each_once limit

# A node dies, and comes back.
job=$(submit train.sbatch --nodes=2 --time=10 -- --out node --steps 10000000 --save-every 20) ||
  fail 'sbatch'
# Steps are fast, so the first checkpoint may already have been replaced by newer ones.
has_checkpoint() { compgen -G "$1/checkpoints/step_????????" >/dev/null; }
await 60 has_checkpoint node || fail 'no checkpoint'
kill -9 "${daemon[n2]}" $(processes_of n2) $(steps_of n2) 2>/dev/null
node_is_down() { [[ $(sinfo -h -n n2 -o '%T') == *down* ]]; }
await 60 node_is_down || fail 'a node that is gone: not noticed'
start_node n2
await 90 has_restarted "$job" || fail 'a job that loses a node: not started again'
saved=$(grep -oE '"checkpoint_step": [0-9]+' node/status.json | tr -dc '0-9')
await 60 has_step node $((saved + 30)) || fail 'a job that loses a node: does not go on'
scancel "$job"
await 30 nodes_are_idle || fail 'nodes are not free after scancel'
each_once node

# An array of runs.
job=$(submit sweep.sbatch --array=0-1 -- --steps 20) || fail 'sbatch of an array'
await 60 test -e sweep/lr-1e-4/status.json -a -e sweep/lr-3e-4/status.json || fail 'array: no runs'
array_is_done() { ! squeue -h -j "$job" 2>/dev/null | grep -q .; }
await 60 array_is_done || fail 'array: not done'
for out in sweep/lr-1e-4 sweep/lr-3e-4; do
  grep -q '"state": "done"' $out/status.json || fail "$out is not done"
  each_once $out
done

[[ $failures == 0 ]] || { echo "$failures failed"; exit 1; }
echo 'all passed'
