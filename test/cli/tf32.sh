#!/usr/bin/env bash
# --tf32: products of fp32 have other operands and train as well; ZeRO, ranks and leaves change no
# bit; the GPU's kernels agree; a GPU without such products, and a plan of its time, are refused.
source "$(dirname "${BASH_SOURCE[0]}")/../support/cli.sh"

for i in $(seq 2000); do echo "line $i of a text that is long enough"; done >"$work/text.txt"

common=(--data "$work/text.txt" --layers 2 --width 64 --heads 2 --seq-len 64 --global-batch 8
  --micro-batch 2 --threads 1 --steps 30 --lr 3e-3 --keep 0 --dtype fp32)

rows() { sed -nE 's/^\{"step": ([0-9]+), .*"loss_bits": ("[0-9a-f]*").*/\1 \2/p' \
  "$work/$1/metrics.jsonl"; }
losses() { sed -nE 's/^\{"step": ([0-9]+), .*"loss": ([0-9.]+).*/\1 \2/p' "$work/$1/metrics.jsonl"; }

# trains NAME RANKS FLAGS...
trains() {
  local name=$1 ranks=$2
  shift 2
  run_training "$ranks" "$name" "$@"
  [[ $code -eq 0 ]] || fail "$name: exit code $code"
}
# same NAME WANT: the losses of every step have the same bits.
same() { [[ -n $(rows "$1") && $(rows "$1") == $(rows "$2") ]] || fail "$1: other losses than $2"; }
# close NAME WANT: the losses of every step are the same to 3 digits, and not in all bits.
close() {
  [[ $(rows "$1") != $(rows "$2") ]] || fail "$1 has the bits of $2"
  paste <(losses "$2") <(losses "$1") | awk '
    $1 != $3 || $2 <= 0 || $4 - $2 > 5e-3 * $2 || $2 - $4 > 5e-3 * $2 { wrong = 1 }
    END { exit wrong || NR == 0 }' || fail "losses of $1, $(losses "$1"), are not those of $2"
}

trains exact 1
trains rounded 1 --tf32
close rounded exact
"$BIN_DIR/shale" plan --check "$work/rounded" >"$work/stdout" 2>"$work/stderr" ||
  fail "the plan of memory is not the run's: $(cat "$work/stdout")"

# ---- What changes no bit ----
few=(--steps 4 --reproducible --tf32)
trains one 1 "${few[@]}"
trains three 2 "${few[@]}" --zero 3
same three one
trains leaves 1 "${few[@]}" --tensor-leaves 2
trains tensor 2 "${few[@]}" --tensor 2 --tensor-leaves 2
same tensor leaves
mixture=(--model moe-nano --kv-heads 2 --steps 4 --reproducible)
trains experts_exact 1 "${mixture[@]}"
trains experts 1 "${mixture[@]}" --tf32
close experts experts_exact

# ---- By the tensor cores of a GPU, emulated ----
emulated=(--steps 2 --reproducible --deterministic --seq-len 32 --global-batch 4 --micro-batch 1)
trains reference 1 "${emulated[@]}" --tf32
trains gpu 1 "${emulated[@]}" --tf32 --device emu:80
trains gpu_exact 1 "${emulated[@]}" --device emu:80
close gpu reference
close gpu gpu_exact

# ---- What is refused ----
run_training 1 turing "${emulated[@]}" --tf32 --device emu:75
[[ $code -ne 0 ]] || fail "a GPU without tf32 is not refused"
cat "$work/stdout" "$work/stderr" | grep -q "tf32 wants compute capability 8.0 or later" ||
  fail "no word of what tf32 wants"
"$BIN_DIR/shale" plan --model nano --ranks 8 --tf32 --threads 1 \
  --cluster "$(dirname "${BASH_SOURCE[0]}")/../../deploy/clusters/a100.json" >"$work/stdout" \
  2>"$work/stderr" && fail "the time of --tf32 is planned"
grep -q "no cluster says how fast" "$work/stderr" || fail "no word of the time: $(cat "$work/stderr")"

finish
