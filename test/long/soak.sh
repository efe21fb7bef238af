#!/usr/bin/env bash
# Soak test: a run on two hosts (network namespaces) that share a folder is interrupted again and
# again, and must end as if nothing had happened, without a person.
#
#   FAULT_LIBRARY=... test/long/soak.sh BUILD_DIR [FAILURES] [SEED]    default: 60 failures, about an hour
#
# The kinds of failures have the frequencies of the 419 unexpected interruptions of Llama 3 405B, in
# 54 days on 16,384 GPUs (arXiv:2407.21783, table 5), but every kind occurs at least twice:
#
#   there  cause                                      here  what happens
#     273  GPU, its memory, CPU, board, power, heat     30  a rank dies of SIGKILL or SIGBUS
#      54  software                                      8  a rank dies of SIGABRT or SIGSEGV
#      42  network switch, cable, card                   6  the link between the hosts is down for 20 s
#      32  unplanned maintenance of a host               5  SIGUSR1; then the job starts again, as from a queue
#       7  NCCL watchdog                                 4  a rank stops (SIGSTOP)
#       5  disk, service                                 3  writes to the folder fail with EIO for 8 s
#                                                        2  the disk of the folder is full for 8 s
#                                                        2  a host is gone for 20 s, with all of its ranks
#       6  silent data corruption                        -  not simulated
#
# Each step must be done once, with the losses of an undisturbed run to the last bit. Prints the
# time from each failure to the next new step, and the goodput: the time of the steps that count,
# divided by the time of the whole run.
source "$(dirname "${BASH_SOURCE[0]}")/../support/cli.sh"
source "$(dirname "${BASH_SOURCE[0]}")/../support/two_hosts.sh"

bin=$(cd "$1/bin" && pwd)
count=${2:-60}
RANDOM=${3:-1}
[[ -e ${FAULT_LIBRARY:-} ]] || skip 'FAULT_LIBRARY is not set'

supervisor=
cleanup() {
  [[ -z $supervisor ]] || kill -9 "$supervisor" 2>/dev/null
  remove_hosts
  umount "$work/shared" 2>/dev/null
  rm -rf "$work"
}
trap cleanup EXIT
make_hosts
mkdir "$work/shared"
mount -t tmpfs -o size=64m soak "$work/shared" || skip 'a tmpfs cannot be mounted'
for i in $(seq 4000); do echo "line $i of a text that is long enough"; done >"$work/text.txt"

training=("$bin/train_lm" --data "$work/text.txt" --layers 2 --width 64 --heads 4 --seq-len 64
  --micro-batch 1 --global-batch 4 --threads 1 --steps 1000000 --zero 1 --reproducible
  --save-every 25 --timeout 5)
failing_disk=(-x "LD_PRELOAD=$FAULT_LIBRARY" -x "SHALE_FAULT_UNDER=$work/shared"
  -x SHALE_FAULT_KIND=eio -x "SHALE_FAULT_WHILE=$work/disk_fails")

# submit: starts the job as a queue does, and appends to its log.
submit() {
  "${from_left[@]}" "$bin/shale" run --elastic --delay 1 --probe-timeout 2 -- $(mpirun_of_hosts) \
    -np 4 "${failing_disk[@]}" "${training[@]}" --resume auto --out "$work/shared/out" \
    >>"$work/log" 2>&1 &
  supervisor=$!
}
ranks() { { ip netns pids "$1"; ip netns pids "$2"; } | xargs -r ps -o pid=,comm= -p |
  awk '$2 == "train_lm" { print $1 }'; }
signal_a_rank() {  # SIGNAL
  local all
  mapfile -t all < <(ranks $left $right)
  kill -"$1" "${all[RANDOM % ${#all[@]}]}"
}
last_step() { tail -n 1 "$work/shared/out/metrics.jsonl" 2>/dev/null |
  sed -nE 's/^\{"step": ([0-9]+), .*/\1/p'; }
one_of() { local all=("$@"); echo "${all[RANDOM % $#]}"; }
heal_in() {  # SECONDS COMMAND...: ends a failure later
  (sleep "$1"; "${@:2}") &
}
link_up() { in_namespace $right ip link set $right_device up; rm -f "$work/right_is_gone"; }

fail_by() {  # KIND
  case $1 in
    rank) signal_a_rank "$(one_of KILL BUS)" ;;
    software) signal_a_rank "$(one_of ABRT SEGV)" ;;
    hang) signal_a_rank STOP ;;
    link | host)
      touch "$work/right_is_gone"
      in_namespace $right ip link set $right_device down
      [[ $1 == link ]] || kill -9 $(ip netns pids $right)
      heal_in 20 link_up ;;
    preemption)
      kill -USR1 "$supervisor"
      wait "$supervisor"
      local code=$?
      [[ $code -eq 75 ]] || fail "preemption: exit code $code, expected 75"
      submit ;;
    eio)
      touch "$work/disk_fails"
      heal_in 8 rm -f "$work/disk_fails" ;;
    full)
      head -c 100M /dev/zero >"$work/shared/filler" 2>/dev/null
      heal_in 8 rm -f "$work/shared/filler" ;;
  esac
}

# step_after STEP: waits until a later step is done; fails after three minutes.
step_after() {
  local tries now
  for ((tries = 0; tries < 1800; ++tries)); do
    now=$(last_step)
    [[ ${now:-0} -gt $1 ]] && return 0
    kill -0 "$supervisor" 2>/dev/null || return 1
    sleep 0.1
  done
  return 1
}

kinds=()
while read -r kind of_60; do
  for ((i = 0; i < (of_60 * count + 59) / 60; ++i)); do kinds+=("$kind"); done
done <<'END'
rank 30
software 8
link 6
preemption 5
hang 4
eio 3
full 2
host 2
END
mapfile -t kinds < <(for kind in "${kinds[@]}"; do echo "$RANDOM $kind"; done | sort -n |
  cut -d ' ' -f 2 | head -n "$count")

declare -A times slowest
shown=("$work/tail")
began=$(date +%s%N)
submit
step_after 0 || fail 'the run does not begin'
for kind in "${kinds[@]}"; do
  [[ $failures -eq 0 ]] || break
  sleep "$((3 + RANDOM % 20)).$((RANDOM % 10))"
  before=$(last_step)
  at=$(date +%s%N)
  fail_by "$kind"
  # Some steps may have been in progress when the failure came, so only a step more than 50 later
  # shows that the run goes on.
  if ! step_after $((before + 50)); then
    tail -n 20 "$work/log" >"$work/tail"
    fail "no step after step $before and the failure '$kind'"
  fi
  took=$(($(date +%s%N) - at))
  times[$kind]=$((${times[$kind]:-0} + 1))
  [[ $took -le ${slowest[$kind]:-0} ]] || slowest[$kind]=$took
done
kill -USR1 "$supervisor"
wait "$supervisor"
code=$?
whole_ns=$(($(date +%s%N) - began))
[[ $code -eq 75 ]] || fail "the end: exit code $code, expected 75"

# ---- Compared with an undisturbed run ----

cp -r "$work/shared/out" "$work/disturbed"
steps=$(last_step)
"${training[@]}" --threads 2 --out "$work/undisturbed" >"$work/undisturbed.log" 2>&1 &
supervisor=$!
until [[ $(rows undisturbed | wc -l) -ge $steps ]]; do
  kill -0 "$supervisor" 2>/dev/null || { fail 'the undisturbed run ended'; break; }
  sleep 1
done
kill -TERM "$supervisor"
wait "$supervisor"
cmp -s <(rows disturbed) <(rows undisturbed | head -n "$steps") ||
  fail "other losses, or a step twice or never: $(diff <(rows disturbed) \
    <(rows undisturbed | head -n "$steps") | head -n 4)"

echo "kind        failures  longest time to the 50th new step"
for kind in rank software link preemption hang eio full host; do
  printf '%-11s %8d  %6.1f s\n' $kind "${times[$kind]:-0}" \
    "$(awk -v t="${slowest[$kind]:-0}" 'BEGIN { print t / 1e9 }')"
done
awk -v whole=$((whole_ns / 1000000)) -v steps="$steps" '
  match($0, /"step_ms": [0-9.]+/) { counted += substr($0, RSTART + 11, RLENGTH - 11) }
  END {
    printf "%d steps in %.0f s; goodput %.0f%%; ", steps, whole / 1000, 100 * counted / whole
    printf "lost or repeated steps 0; actions by a person 0\n"
  }' "$work/disturbed/metrics.jsonl"
finish
