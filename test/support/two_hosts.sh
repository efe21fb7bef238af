# Simulates two hosts: network namespaces on this host, joined by a pair of network devices. Scripts
# source this file. It exits with code 4 if namespaces cannot be made. The functions use the folder
# $work.

skip() { echo "skipped: $*"; exit 4; }
[[ $(id -u) -eq 0 ]] || skip 'not root'
command -v ip >/dev/null || skip 'there is no ip command'

id=$$
left=shale-l-$id right=shale-r-$id  # namespaces, with the addresses .1 and .2 of the subnet
left_device=sl$id right_device=sr$id
subnet=10.213.77.0/24

# in_namespace NAME COMMAND...: does what `ip netns exec` and `ip -n` do, without mounting /sys
# again, which is impossible in a chroot.
in_namespace() { nsenter --net="/run/netns/$1" "${@:2}"; }

remove_hosts() {
  local ns process
  for ns in $left $right; do
    for process in $(ip netns pids $ns 2>/dev/null); do kill -9 "$process" 2>/dev/null; done
    ip netns del $ns 2>/dev/null
  done
}

# make_hosts: makes both hosts. Each gets $bridges further interfaces, which come first and lead
# nowhere, like those of containers. Also makes $work/remote_shell, which replaces ssh for mpirun,
# and $work/hosts, with two slots for each host.
make_hosts() {
  ip netns add $left 2>/dev/null || skip 'network namespaces cannot be made'
  ip netns add $right || skip 'network namespaces cannot be made'
  local number ns
  for number in $(seq ${bridges:-0}); do
    for ns in $left $right; do
      ip link add bridge$number netns $ns type bridge || skip 'no bridges'
      in_namespace $ns ip addr add 172.30.$number.1/24 dev bridge$number
      in_namespace $ns ip link set bridge$number up
    done
  done
  ip link add $left_device netns $left type veth peer name $right_device netns $right ||
    skip 'no veth devices'
  local end device address
  for end in "$left $left_device 10.213.77.1" "$right $right_device 10.213.77.2"; do
    read -r ns device address <<<"$end"
    in_namespace "$ns" ip addr add "$address/${subnet#*/}" dev "$device"
    in_namespace "$ns" ip link set lo up
    in_namespace "$ns" ip link set "$device" up
  done
  cat >"$work/remote_shell" <<END
#!/bin/sh
[ -e $work/right_is_gone ] && [ "\$1" = 10.213.77.2 ] && exit 255
case \$1 in 10.213.77.1) ns=$left; name=left ;; *) ns=$right; name=right ;; esac
shift
exec nsenter --net=/run/netns/\$ns unshare --uts sh -c "hostname \$name; \$*"
END
  chmod +x "$work/remote_shell"
  printf '10.213.77.1 slots=2\n10.213.77.2 slots=2\n' >"$work/hosts"
}

# Start of the command that runs ranks from the left host. The number of ranks and their placement
# must follow.
from_left=(nsenter "--net=/run/netns/$left" unshare --uts sh -c 'hostname left; exec "$@"' sh)
mpirun_of_hosts() {
  echo mpirun --bind-to none --mca plm_rsh_agent "$work/remote_shell" --mca btl tcp,self \
    --mca btl_tcp_if_include $subnet --mca oob_tcp_if_include $subnet --hostfile "$work/hosts"
}
