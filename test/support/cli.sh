# Common functions of scripts that test programs, which source it:
#
#   source "$(dirname "${BASH_SOURCE[0]}")/../support/cli.sh"
#
# $work      a folder, removed when the script ends
# $shown     files that fail() prints if they exist
# $png_pixel  a PNG file of one gray pixel, as an argument of printf
# fail WORDS   prints and counts a failure
# finish       ends the script, with 1 after failures
# write_latents FILE [LABEL]
#              writes four latents of zeros, [4, 8, 8], with the labels 0, 1, 1 and 0; LABEL
#              replaces the second label: 8 bytes, as an argument of printf
# add_gpu FOLDER PATH NODE CPUS LANES REACHED NAME
#              adds a GPU to a machine that SHALE_MACHINE simulates
# launch PROCESSES COMMAND...
#              runs a command on PROCESSES processes, one without mpirun, for at most two minutes
# run_training PROCESSES OUT FLAGS...
#              launches $BIN_DIR/train_lm, or another $program, with the flags in the array `common`
#              and these, into $work/OUT; leaves its output in $work/stdout and $work/stderr, and
#              the exit code in `code`
# trains NAME PROCESSES FLAGS...
#              run_training PROCESSES NAME FLAGS..., which must succeed
# rows NAME    prints the number and the loss bits of each step of $work/NAME
# losses NAME  prints the number and the loss of each step
# same NAME WANT
#              counts a failure unless the losses of every step have the same bits
# close NAME WANT STEPS
#              counts a failure unless there are STEPS losses, within 0.5% of each other

set -uo pipefail

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
failures=0
shown=("$work/output")
png_pixel='\211\120\116\107\015\012\032\012\000\000\000\015\111\110\104\122\000\000\000\001\000\000\000'
png_pixel+='\001\010\000\000\000\000\072\176\233\125\000\000\000\012\111\104\101\124\170\234\143\160\000'
png_pixel+='\000\000\102\000\101\051\067\364\357\000\000\000\000\111\105\116\104\256\102\140\202'

fail() {
  failures=$((failures + 1))
  echo "FAILED: $*"
  local file
  for file in "${shown[@]}"; do
    if [[ -s $file ]]; then head -n 20 "$file" | sed 's/^/    /'; fi
  done
}

finish() {
  [[ $failures -eq 0 ]] || { echo "$failures failed"; exit 1; }
  echo "${*:-all passed}"
  exit 0
}

write_latents() {
  local header='{"labels":{"dtype":"I64","shape":[4],"data_offsets":[0,32]},'
  header+='"latents":{"dtype":"F16","shape":[4,4,8,8],"data_offsets":[32,2080]}}'
  while ((${#header} % 8)); do header+=' '; done
  {
    printf "\\x$(printf %x "${#header}")\0\0\0\0\0\0\0%s" "$header"
    printf '\0\0\0\0\0\0\0\0%b' "${2:-\1\0\0\0\0\0\0\0}"
    printf '\1\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0'
    head -c 2048 /dev/zero
  } >"$1"
}

# Adds a GPU to the folder of a machine that SHALE_MACHINE simulates. PATH leads from a host bridge
# to the GPU, such as pci0000:16/0000:16:01.0/0000:17:00.0; all its links have LANES lanes. REACHED
# lists the GPUs whose memory this one can access, such as "0,1", or is "-". ARCH is the compute
# capability times ten.
add_gpu() {  # FOLDER PATH NODE CPUS LANES REACHED NAME [ARCH]
  local folder=$1 device=$1/sys/devices/$2 at
  mkdir -p "$device" "$folder/sys/bus/pci/devices"
  for ((at = 0; at < 8; ++at)); do
    [[ $device == */pci0000:?? ]] && break
    echo '16.0 GT/s PCIe' >"$device/max_link_speed"
    echo "$5" >"$device/current_link_width"
    echo 16 >"$device/max_link_width"
    device=${device%/*}
  done
  device=$folder/sys/devices/$2
  echo "$3" >"$device/numa_node"
  echo "$4" >"$device/local_cpulist"
  ln -s "$device" "$folder/sys/bus/pci/devices/${2##*/}"
  echo "${2##*/} ${8:-89} $6 $7" >>"$folder/gpus"
}

launch() {
  if (($1 == 1)); then timeout 120 "${@:2}"; return; fi
  # Kills the rest of a failed job immediately, not a second or two later.
  OMPI_MCA_odls_base_sigkill_timeout=0 \
    timeout 120 mpirun --oversubscribe --bind-to none -np "$@"
}

run_training() {
  launch "$1" "$BIN_DIR/${program:-train_lm}" "${common[@]}" --out "$work/$2" "${@:3}" \
    >"$work/stdout" 2>"$work/stderr"
  code=$?
}

trains() {
  local name=$1
  run_training "$2" "$name" "${@:3}"
  [[ $code -eq 0 ]] || fail "$name: exit code $code"
}

rows() { sed -nE 's/^\{"step": ([0-9]+), .*"loss_bits": ("[0-9a-f]*").*/\1 \2/p' \
  "$work/$1/metrics.jsonl"; }
losses() { sed -nE 's/^\{"step": ([0-9]+), .*"loss": ([0-9.]+).*/\1 \2/p' "$work/$1/metrics.jsonl"; }
same() { [[ -n $(rows "$1") && $(rows "$1") == $(rows "$2") ]] || fail "$1: other losses than $2"; }
close() {
  paste <(losses "$2") <(losses "$1") | awk -v steps="$3" '
    $1 != $3 || $2 <= 0 || $4 - $2 > 5e-3 * $2 || $2 - $4 > 5e-3 * $2 { wrong = 1 }
    END { exit wrong || NR != steps }' ||
    fail "losses of $1, $(losses "$1"), are not those of $2, $(losses "$2")"
}
