#!/usr/bin/env bash
# lost_host.sh [all]      BAD_LINK: path of the program bad_link
#
# Emulates two hosts by network namespaces. When the link between them goes down, ranks on both
# sides must name the lost ranks within seconds and end with 76. A link that loses and delays
# packets must only slow them down. Skips (code 4) if namespaces cannot be created.
set -uo pipefail

source "$(dirname "${BASH_SOURCE[0]}")/../support/two_hosts.sh"
work=$(mktemp -d)
cleanup() {
  kill -9 ${launcher:-} ${carrier:-} 2>/dev/null
  remove_hosts
  rm -rf "$work"
}
trap cleanup EXIT
bridges=5
make_hosts

# Output of ranks on a lost host does not reach mpirun, so ranks write to files.
cat >"$work/rank" <<END
#!/bin/sh
"\$@" >"$work/out.\$OMPI_COMM_WORLD_RANK" 2>&1
code=\$?
echo \$code >"$work/code.\$OMPI_COMM_WORLD_RANK"
exit \$code
END
chmod +x "$work/rank"
yes 'a line of text to learn from' | head -n 300 >"$work/text.txt"

failures=0
fail() {
  echo "FAILED: $*"
  failures=$((failures + 1))
}

supervisor=()                # command in front of mpirun
rank_wrapper=("$work/rank")  # command in front of each rank's command
start() {  # RANKS FLAG...: starts training in the background
  local ranks=$1
  shift
  rm -f "$work"/code.* "$work"/out.*
  "${from_left[@]}" "${supervisor[@]}" $(mpirun_of_hosts) --map-by node -np "$ranks" \
    "${rank_wrapper[@]}" "$BIN_DIR/train_lm" \
    --data "$work/text.txt" --layers 1 --width 32 --heads 2 --seq-len 16 --micro-batch 1 \
    --threads 1 --out "$work/out" "$@" >"$work/launcher" 2>&1 &
  launcher=$!
}
rows() { cat "$work/out/metrics.jsonl" 2>/dev/null | wc -l; }
milliseconds() { date +%s%3N; }

# ---- Ranks that take turns on the hosts cannot have the losses of one host ----

start 4 --steps 2 --reproducible --global-batch 4
wait "$launcher"
code=$?
[[ $code -eq 64 ]] || fail "--reproducible over hosts in turn: exit code $code, expected 64"
grep -q 'needs the same number of ranks on each host' "$work"/out.* ||
  fail '--reproducible over hosts in turn: the error does not name the reason'

# ---- The link goes down ----

timeout_s=3
start 4 --steps 1000000 --timeout $timeout_s
for _ in $(seq 400); do [[ $(rows) -ge 20 ]] && break; sleep 0.05; done
[[ $(rows) -ge 20 ]] || fail 'two hosts do not train'
# The heartbeat sockets of two ranks on each side are bound to the addresses of the link only.
for end in "$left 014DD50A" "$right 024DD50A"; do
  read -r ns address <<<"$end"  # addresses in hexadecimal, as in /proc/net
  listening=$(in_namespace "$ns" awk 'NR > 1 { print substr($2, 1, 8) }' /proc/net/udp | xargs)
  [[ $listening == "$address $address" ]] || fail "$ns listens on '$listening', expected $address twice"
done
# Datagrams of strangers are ignored: random ones, and copies of a failing rank's message that lack
# the secret number of the ranks.
ports=$(in_namespace $left awk 'NR > 1 { split($2, a, ":"); print a[2] }' /proc/net/udp | xargs)
before=$(rows)
in_namespace $right perl -MSocket -e '
  srand(1);
  my ($magic, @ports) = map { hex } @ARGV;
  socket(my $socket, PF_INET, SOCK_DGRAM, 0) or die;
  for my $i (1 .. 1500) {
    my $size = (0, 1, 23, 24, 48, 49, 200, 60000)[$i % 8];
    my $random = join "", map { chr rand 256 } 1 .. $size;
    my $forged = pack("L l Q l l", $magic, rand 4, rand 2**53, 76, 1) . pack("l L q q", rand 4, 0, 2**40, 7);
    my $to = sockaddr_in($ports[$i % @ports], inet_aton("10.213.77.1"));
    send($socket, $i % 3 ? $forged : $random, 0, $to);
  }' 0x53484c50 $ports
for _ in $(seq 200); do [[ $(rows) -ge $((before + 20)) ]] && break; sleep 0.05; done
[[ $(rows) -ge $((before + 20)) ]] || fail 'forged datagrams stop the run'
in_namespace $left ip link set $left_device down
cut=$(milliseconds)
# Counts rank processes, which are recognized by the program name.
ranks_left() { { ip netns pids $left; ip netns pids $right; } | xargs -r ps -o comm= -p | grep -c train_lm; }
for _ in $(seq 200); do
  [[ $(ranks_left) -eq 0 ]] && break
  sleep 0.05
done
took=$(($(milliseconds) - cut))
# Ranks are placed on hosts in turn: ranks 0 and 2 are on the left.
for rank in 0 1 2 3; do
  lost=$([[ $((rank % 2)) -eq 0 ]] && echo 1,3 || echo 0,2)
  cat "$work/out"/failure/*.txt "$work/out.$rank" | grep -E "^(\[rank $rank\]|error:)" |
    grep -qE "no (heartbeat from ranks|message from the node of ranks) $lost for" ||
    fail "rank $rank does not name ranks $lost"
done
# On each host, the rank that ends first sets the exit code. mpirun may kill the other rank together
# with its shell.
for host in '0 2' '1 3'; do
  read -r a b <<<"$host"
  codes=$(cat "$work/code.$a" "$work/code.$b" 2>/dev/null | sort -u | tr '\n' ' ')
  [[ $codes == '76 ' ]] || fail "ranks $host end with '$codes', expected 76"
done
[[ $(ranks_left) -eq 0 ]] || fail "$(ranks_left) ranks are still there"
[[ $took -lt $((1000 * timeout_s + 5000)) ]] || fail "ranks ended after $took ms"
echo "link down: all ranks ended after $took ms, with a time-out of $timeout_s s"
[[ $failures -eq 0 ]] || head -n 30 "$work"/out.* "$work/launcher" | cut -c 1-160 | sed 's/^/    /'
kill -9 "$launcher" 2>/dev/null
wait "$launcher" 2>/dev/null
in_namespace $left ip link set $left_device up
rm -rf "$work/out"
sleep 1

# A silent host is noticed after 90 s, even if collectives have a longer time-out.
if [[ ${1:-} == all ]]; then
  start 4 --steps 1000000 --timeout 600
  for _ in $(seq 400); do [[ $(rows) -ge 20 ]] && break; sleep 0.05; done
  in_namespace $left ip link set $left_device down
  cut=$(milliseconds)
  for _ in $(seq 1500); do [[ $(ranks_left) -eq 0 ]] && break; sleep 0.1; done
  took=$(($(milliseconds) - cut))
  [[ $took -gt 85000 && $took -lt 110000 ]] || fail "--timeout 600: ended after $took ms"
  echo "link down: all ranks ended after $took ms, with a time-out of 600 s"
  kill -9 "$launcher" 2>/dev/null
  wait "$launcher" 2>/dev/null
  in_namespace $left ip link set $left_device up
  rm -rf "$work/out"
  sleep 1
fi

# ---- Under a supervisor, the run continues on the remaining host ----

if [[ ${1:-} == all ]]; then
  supervisor=("$BIN_DIR/shale" run --elastic --)
  rank_wrapper=()  # a shell between mpirun and the rank would not forward signals
  start 4 --steps 200000 --save-every 20 --timeout $timeout_s --global-batch 4
  for _ in $(seq 400); do [[ $(rows) -ge 60 ]] && break; sleep 0.05; done
  touch "$work/right_is_gone"
  in_namespace $right ip link set $right_device down
  for _ in $(seq 60); do grep -q 'starting again (restart 1)' "$work/launcher" && break; sleep 1; done
  before=$(rows)
  sleep 5
  [[ $(rows) -gt $before && $before -ge 20 ]] || fail "no steps after $before on the host that is left"
  grep -q 'host 10.213.77.2 does not answer' "$work/launcher" || fail 'the lost host is not named'
  kill -TERM "$launcher"
  wait "$launcher"
  code=$?
  [[ $code -eq 75 ]] || fail "supervised: exit code $code, expected 75"
  grep -E 'shale run' "$work/launcher" | cut -c 1-160
  supervisor=()
  rank_wrapper=("$work/rank")
  rm -rf "$work/right_is_gone" "$work/out"
  in_namespace $right ip link set $right_device up
fi

# ---- A link that loses and delays packets ----

# The new link replaces the first one, so that there is no other route. With "all", it is so slow
# that TCP takes minutes.
loss=0.05 delay_ms=20
[[ ${1:-} != all ]] || { loss=0.3 delay_ms=200; }
in_namespace $left ip link del $left_device
: >"$work/bad_link"
"$BAD_LINK" tl$id tr$id $loss $delay_ms >"$work/bad_link" 2>&1 &
carrier=$!
for _ in $(seq 100); do [[ -s $work/bad_link ]] && break; sleep 0.05; done
if grep -q ready "$work/bad_link"; then
  for end in "$left tl$id 1 2" "$right tr$id 2 1"; do
    read -r ns device own other <<<"$end"
    ip link set "$device" netns "$ns"
    in_namespace "$ns" ip addr add 10.213.77.$own peer 10.213.77.$other/24 dev "$device"
    in_namespace "$ns" ip link set "$device" up
  done
  started=$(milliseconds)
  start 2 --steps 3 --timeout 60
  wait "$launcher"
  code=$?
  took=$(($(milliseconds) - started))
  [[ $code -eq 0 && $(rows) -eq 3 ]] || {
    fail "a bad link: exit code $code after $(rows) steps, expected 0 after 3"
    head -n 30 "$work"/out.* "$work/launcher" | sed 's/^/    /'
  }
  kill -TERM $carrier
  wait $carrier
  grep -q 'lost [1-9]' "$work/bad_link" || fail 'the bad link lost nothing'
  echo "a link that loses $loss and delays by $delay_ms ms: 3 steps after $took ms, $(tail -n 1 "$work/bad_link")"
else
  echo "skipped: packet loss: $(cat "$work/bad_link")"
fi

[[ $failures -eq 0 ]] && echo 'all passed'
exit $((failures > 0))
