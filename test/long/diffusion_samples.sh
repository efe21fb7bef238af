#!/usr/bin/env bash
# A small diffusion transformer learns shapes: of 256 guided samples a classifier, trained on other
# shapes, names the class that was asked for, figure and colour, at least 9 times of 10, and its
# scores of them lie near those of shapes. Takes tens of minutes.
# Usage: test/long/diffusion_samples.sh BUILD_DIR [OUT_DIR]
set -euo pipefail

bin=$1/bin
work=${2:-$(mktemp -d)}
[[ $# -ge 2 ]] || trap 'rm -rf "$work"' EXIT
mkdir -p "$work"

# run NAME PROGRAM FLAGS...
run() {
  local name=$1 program=$2
  shift 2
  echo "$program $*"
  "$bin/$program" --out "$work/$name" "$@" >"$work/$name.log" 2>&1 ||
    { tail -n 20 "$work/$name.log"; exit 1; }
  grep validation "$work/$name.log" | tail -n 1
}

run classifier train_image --data shapes --pixels 32 --model resnet18 --seed 1 \
  --global-batch 64 --micro-batch 64 --steps 1500 --warmup-steps 100 --eval-every 500 --dtype bf16
run diffusion train_diffusion --data shapes --pixels 32 --made-images 1048576 --seed 2 --dtype bf16 \
  --global-batch 64 --micro-batch 64 --steps 10000 --warmup-steps 200 --optimizer muon --lr 6e-3 \
  --min-lr 1e-4 --weight-decay 0.02 --ema 0.999 --times logit-normal --time-shift 2 \
  --eval-every 1000 --eval-samples 512 --samples 48 --guidance 3
"$bin/bench_samples" --classifier "$work/classifier" --diffusion "$work/diffusion" \
  --samples 256 --guidance 3 --min-named 0.9 --max-distance 0.05 --grid "$work/samples"
