#!/usr/bin/env bash
# Tests train_diffusion: bit-identical losses in every ZeRO stage, with several workers, with
# offload and after a stop; sample grids; latents; import and export of weights; refused options.
source "$(dirname "${BASH_SOURCE[0]}")/../support/cli.sh"
shown=("$work/stdout" "$work/stderr")
program=train_diffusion

common=(--data shapes --made-images 64 --pixels 8 --threads 1 --steps 4 --global-batch 8
  --micro-batch 4 --sample-steps 4 --timeout 60)

# bits OUT: prints loss bits of all steps. evaluations OUT: prints validation results.
bits() { sed -nE 's/^\{"step": ([0-9]+), .*"loss_bits": ("[0-9a-f]*").*/\1 \2/p' \
  "$work/$1/metrics.jsonl"; }
evaluations() { grep '"val_loss"' "$work/$1/metrics.jsonl" | sed 's/, "val_ms".*//'; }
val_loss() { evaluations "$1" | sed -E 's/.*"val_loss": ([^,]*),.*/\1/'; }

# runs NAME RANKS FLAGS...: runs successfully.
runs() {
  local name=$1 ranks=$2
  shift 2
  run_training "$ranks" "$name" "$@"
  [[ $code -eq 0 && $(bits "$name" | wc -l) -eq 4 ]] || fail "$name: exit code $code"
}

# png_size FILE: prints width and height, which are at byte 16 of a PNG file.
png_size() { od -An -j16 -N8 -t u1 "$1" | awk '{ print $3 * 256 + $4, $7 * 256 + $8 }'; }

# ---- Two ranks: ZeRO stages, workers, a stop, and samples ----
runs plain 2 --ema 0.5 --eval-every 2 --save-every 2 --keep 0 --samples 5 --workers 2
[[ $(evaluations plain | grep -c '"val_images": 6') -eq 2 ]] || fail "plain: no validations"
for step in 2 4; do
  grid=$work/plain/samples/step_0000000$step.png
  size=$(png_size "$grid")
  [[ $size == "32 22" ]] || fail "plain: the grid of step $step is $size"
done
cmp -s "$work"/plain/samples/step_0000000{2,4}.png && fail "plain: samples stay as they are"
for stage in 1 2 3; do
  kept=()
  [[ $stage -ne 2 ]] || kept=(--offload optimizer)
  runs "zero$stage" 2 --ema 0.5 --zero "$stage" --recompute full "${kept[@]}" --no-save \
    --eval-every 2 --samples 5
  [[ $(bits "zero$stage") == $(bits plain) ]] || fail "zero$stage: other losses"
  [[ $(evaluations "zero$stage") == $(evaluations plain) ]] || fail "zero$stage: another validation"
  cmp -s "$work"/{plain,"zero$stage"}/samples/step_00000004.png || fail "zero$stage: other samples"
done
run_training 2 resumed --ema 0.5 --resume "$work/plain/checkpoints/step_00000002" --eval-every 2 \
  --samples 5
[[ $code -eq 0 && $(bits resumed) == $(bits plain | tail -n 2) ]] || fail "resumed: other losses"
cmp -s "$work"/{plain,resumed}/samples/step_00000004.png || fail "resumed: other samples"

# ---- ONNX files ----
# onnx CODE WORDS FLAGS...: shale ckpt export --to onnx ends with CODE and prints WORDS.
onnx() {
  local code=0 expected=$1 words=$2
  shift 2
  "$BIN_DIR/shale" ckpt export "$@" --to onnx >"$work/stdout" 2>"$work/stderr" || code=$?
  [[ $code -eq $expected ]] && grep -q "$words" "$work/stdout" "$work/stderr" ||
    fail "onnx $*: exit code $code, expected $expected"
}
onnx 0 'nodes, .* of weights, any batch size' "$work/plain" --out "$work/plain.onnx"
onnx 64 'needs --dtype fp32' "$work/plain" --out "$work/x.onnx" --dtype bf16
onnx 0 'any batch size' "$work/plain" --out "$work/average.onnx" --ema
cmp -s "$work"/{plain,average}.onnx && fail "onnx: averages are as the weights"
[[ ! -e $work/x.onnx ]] || fail "onnx: a refused export left a file"

# ---- DDPM with learned variances, in bf16 ----
runs ddpm 1 --process ddpm --learned-variance --dtype bf16 --no-save --eval-every 4 --samples 1
[[ -s $work/ddpm/samples/step_00000004.png ]] || fail "ddpm: no samples"

# ---- Latents: two classes of zeros, in one file ----
mkdir "$work/stored"
latents=$work/stored/a.safetensors
write_latents "$latents"
runs latents 1 --data "$work/stored" --val-fraction 0.5 --patch 2 --no-save --eval-every 4 \
  --samples 3
grep -q '2 training and 2 validation latents of 2 classes, 4 x 8 x 8' "$work/stdout" ||
  fail "latents: no word of the data"
[[ -s $work/latents/samples/step_00000004.safetensors ]] || fail "latents: no samples"

# ---- Weights: with a negligible learning rate, a run has the loss of the run whose weights it
# starts from ----
for variant in paper diffusers; do
  runs "out_$variant" 1 --variant "$variant" --no-save --eval-every 4 --samples 0 \
    --export "$work/$variant"
  runs "in_$variant" 2 --variant "$variant" --zero 3 --no-save --eval-every 4 --samples 0 \
    --init "$work/$variant" --lr 1e-30
  [[ -n $(val_loss "out_$variant") && $(val_loss "in_$variant") == $(val_loss "out_$variant") ]] ||
    fail "$variant: loss $(val_loss "in_$variant") after --init, $(val_loss "out_$variant") before"
done
[[ -s $work/paper/model.safetensors && ! -e $work/paper/config.json ]] || fail "paper: other files"
[[ -s $work/diffusers/diffusion_pytorch_model.safetensors && -s $work/diffusers/config.json ]] ||
  fail "diffusers: other files"

# ---- Refused options ----
# refuses CODE WORDS FLAGS...: the run ends with exit code CODE and an error with WORDS.
refuses() {
  local want=$1 words=$2
  shift 2
  run_training 1 refused "$@"
  [[ $code -eq $want ]] || fail "$*: exit code $code, expected $want"
  grep -q -- "$words" "$work/stderr" || fail "$*: no word of '$words'"
}
refuses 64 '--learned-variance needs --process ddpm' --learned-variance
refuses 64 'logit-normal is incompatible with --process ddpm' --process ddpm --times logit-normal
refuses 64 'patch is 3, expected a divisor of the image size, 8' --patch 3
refuses 64 'guidance 2 .* --label-dropout above 0, or --guidance 1' --label-dropout 0 \
  --eval-every 2
refuses 66 'no such file or folder' --data "$work/nowhere"
refuses 66 'no such file or folder' --init "$work/nowhere"
refuses 65 'does not describe the model of .*num_layers is 6, expected 12' \
  --init "$work/diffusers" --model dit-s2
refuses 65 'the weights do not fit the model: ' --init "$work/paper" --model dit-s2
checkpoints=$(cd "$(dirname "${BASH_SOURCE[0]}")/../fixtures/checkpoints" && pwd)
refuses 65 'the weights do not fit the model: ' --init "$checkpoints/dit.pt"
refuses 65 'uses torch.nn.modules.container.Sequential' --init "$checkpoints/module.pt"
write_latents "$latents" '\377\377\377\377\377\377\377\377'
refuses 65 "a.safetensors: the label of image 1 is" --data "$work/stored"

finish
