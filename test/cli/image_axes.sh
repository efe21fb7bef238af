#!/usr/bin/env bash
# Tests tensor and pipeline parallelism of vision and diffusion transformers. Losses, validations,
# samples, checkpoints and weights equal those of one rank. Errors name values that would work.
source "$(dirname "${BASH_SOURCE[0]}")/../support/cli.sh"
root=$work

data=(--data shapes --made-images 64 --threads 1 --steps 4 --global-batch 16 --micro-batch 4
  --eval-every 2 --keep 0 --timeout 60)

# rows NAME FROM: prints loss bits and all validation results of steps after FROM.
rows() {
  sed -nE 's/^\{"step": ([0-9]+), .*"loss_bits": ("[0-9a-f]*").*/\1 \2/p
    s/^\{"step": ([0-9]+), ("val_loss": .*), "val_ms".*/\1 \2/p' "$work/$1/metrics.jsonl" |
    awk -v from="${2:-0}" '$1 > from'
}
losses() { sed -nE 's/^\{"step": [0-9]+, "loss": ([0-9.e-]+).*/\1/p' "$work/$1/metrics.jsonl"; }

# same NAME REFERENCE [FROM]: the two runs have equal rows after step FROM.
same() {
  [[ -n $(rows "$1" "${3:-0}") && $(rows "$1" "${3:-0}") == $(rows "$2" "${3:-0}") ]] ||
    fail "$1: other losses or validations than $2"
}
# follows NAME REFERENCE: the losses match up to rounding.
follows() {
  paste <(losses "$1") <(losses "$2") | awk '{ d = $1 - $2; if (d < 0) d = -d
    if (d > 2e-4 * $1) bad = 1 } END { exit NR != 4 || bad }' || fail "$1 does not follow $2"
}
same_weights() {
  cmp -s "$work/$1/model.safetensors" "$work/$2/model.safetensors" ||
    fail "$1: other weights than $2"
}
# refuses WORDS PROCESSES FLAGS...: the run fails with an error that contains WORDS.
refuses() {
  run_training "$2" refused --no-save "${@:3}"
  [[ $code -eq 64 ]] && grep -q -- "$1" "$work/stderr" ||
    fail "${*:3}: exit code $code, expected 64 and \"$1\""
}

# check PROGRAM MODEL_FLAGS...: runs all tests for one kind of model.
check() {
  program=$1 work=$root/$1
  shown=("$work/stdout" "$work/stderr")
  mkdir "$work"
  common=("${data[@]}" "${@:2}")
  trains one 1 --no-save
  trains two 1 --tensor 2 --no-save
  follows two one
  # Any number of processes gives identical bits; every layout resumes checkpoints of every other.
  local tree=(--tensor 4 --reproducible)
  trains cut 1 "${tree[@]}" --no-save --export "$work/out_cut"
  trains cut2 2 "${tree[@]}" --no-save
  same cut2 cut
  trains cut4 4 "${tree[@]}" --no-save --recompute full --export "$work/out_cut4"
  same cut4 cut
  same_weights out_cut4 out_cut
  trains sharded 4 "${tree[@]}" --ranks-per-process 2 --zero 3 --save-every 2 --check-replicas 2
  same sharded cut
  trains grid 2 "${tree[@]}" --pipeline 2 "${unseen[@]}" --export "$work/out_grid" \
    --resume "$work/sharded/checkpoints/step_00000002"
  same grid cut 2
  same_weights out_grid out_cut
  # A pipeline must not change any bit.
  trains plain 1 --reproducible --dtype bf16 --save-every 2 --export "$work/out_plain"
  trains piped 2 --reproducible --dtype bf16 --pipeline 2 "${unseen[@]}" --save-every 2 \
    --export "$work/out_piped"
  same piped plain
  same_weights out_piped out_plain
  trains zbv 2 --reproducible --dtype bf16 --pipeline 2 --pipeline-schedule zbv --zero 1 \
    "${unseen[@]}" --resume "$work/plain/checkpoints/step_00000002" --recompute selective
  same zbv plain 2
  trains back 1 --reproducible --dtype bf16 --resume "$work/piped/checkpoints/step_00000002"
  same back plain 2
  # Imports weights into several layouts.
  trains sent 1 --tensor 2 --steps 0 --no-save --init "$work/out_cut" --export "$work/out_sent"
  same_weights out_sent out_cut

  refuses 'bidirectional attention' 1 --context 2
  refuses 'micro-batch is 3, expected a multiple of 2' 1 --tensor 2 --global-batch 3 --micro-batch 3
  refuses 'use --zero 0 or 1' 2 --pipeline 2 --zero 2 "${unseen[@]}"
}

unseen=()
check train_image --model vit-nano --pixels 16 --optimizer sgd --lr 0.01
refuses 'tensorboard-images with --pipeline 2' 2 --pipeline 2 --tensorboard --tensorboard-images 2
trains mixed 1 --mixup 0.2 --label-smoothing 0.1 --reproducible --no-save
trains mixed2 2 --mixup 0.2 --label-smoothing 0.1 --reproducible --no-save --pipeline 2
same mixed2 mixed

unseen=(--samples 0)  # skips samples, which a pipeline cannot draw
check train_diffusion --pixels 8 --sample-steps 4 --samples 5 --ema 0.5
for name in cut4 sharded; do
  cmp -s "$work/$name/samples/step_00000004.png" "$work/cut/samples/step_00000004.png" ||
    fail "$name: other samples than cut"
done
refuses 'use --samples 0 or --pipeline 1' 2 --pipeline 2
ddpm=(--process ddpm --learned-variance --samples 0 --no-save)
trains ddpm 1 "${ddpm[@]}" --tensor 2
trains ddpm2 2 "${ddpm[@]}" --tensor 2
same ddpm2 ddpm
work=$root
finish
