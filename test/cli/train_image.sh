#!/usr/bin/env bash
# Tests train_image: bit-identical losses in every ZeRO stage, with recomputation, with several
# workers and after a stop; synchronized batch-norm statistics; damaged files; refused options.
source "$(dirname "${BASH_SOURCE[0]}")/../support/cli.sh"
shown=("$work/stdout" "$work/stderr")
program=train_image

common=(--data shapes --made-images 64 --pixels 16 --threads 1 --optimizer sgd --lr 0.01 --steps 4
  --global-batch 8 --timeout 60)

# bits OUT: prints loss bits of all steps.
bits() { sed -nE 's/^\{"step": ([0-9]+), .*"loss_bits": ("[0-9a-f]*").*/\1 \2/p' \
  "$work/$1/metrics.jsonl"; }

# evaluations OUT: prints all validation results except their time.
evaluations() { grep '"val_loss"' "$work/$1/metrics.jsonl" | sed 's/, "val_ms".*//'; }

# runs NAME RANKS FLAGS...: runs successfully.
runs() {
  local name=$1 ranks=$2
  shift 2
  run_training "$ranks" "$name" "$@"
  [[ $code -eq 0 && $(bits "$name" | wc -l) -eq 4 ]] || fail "$name: exit code $code"
}

# ---- A residual network on two ranks: ZeRO stages, and a stop ----
net=(--model resnet18-small --micro-batch 4)
runs plain 2 "${net[@]}" --eval-every 2 --save-every 2 --keep 0 --export "$work/plain_end"
shares='"val_top1": [0-9.e-]*, "val_top5": [0-9.e-]*, "val_images": 6'
[[ $(evaluations plain | grep -c "$shares") -eq 2 ]] || fail "plain: no shares of images"
grep -q 'top 1: ' "$work/stdout" || fail "plain: no word of the shares"
for stage in 1 2 3; do
  runs "zero$stage" 2 "${net[@]}" --zero "$stage" --no-save --eval-every 2
  [[ $(bits "zero$stage") == $(bits plain) ]] || fail "zero$stage: other losses"
  [[ $(evaluations "zero$stage") == $(evaluations plain) ]] || fail "zero$stage: another validation"
done
# Two validations with two images each.
runs shown 2 "${net[@]}" --no-save --eval-every 2 --tensorboard --tensorboard-images 2 --ema 0.5
[[ $(bits shown) == $(bits plain) ]] || fail "images for TensorBoard: other losses"
for image in 1 2; do
  [[ $(cat "$work"/shown/tensorboard/* | grep -ao "validation/image_$image" | wc -l) -eq 2 ]] ||
    fail "images for TensorBoard: not image $image of each validation"
done
[[ $(cat "$work"/shown/tensorboard/* | grep -aoF $'\x89PNG' | wc -l) -eq 4 ]] ||
  fail "images for TensorBoard: no PNG files"
run_training 1 unseen "${net[@]}" --tensorboard-images 2 --eval-every 2
[[ $code -eq 64 ]] && grep -q 'no effect without --tensorboard;' "$work/stderr" ||
  fail "--tensorboard-images alone: exit code $code, expected 64"
runs again 2 "${net[@]}" --zero 2 --no-save --recompute full --workers 3 --eval-every 2
[[ $(bits again) == $(bits plain) ]] || fail "recompute: other losses"
[[ $(evaluations again) == $(evaluations plain) ]] || fail "recompute: another validation"
run_training 2 resumed "${net[@]}" --resume "$work/plain/checkpoints/step_00000002" --zero 3 --eval-every 2
[[ $code -eq 0 && $(bits resumed) == $(bits plain | tail -n 2) ]] || fail "resumed: other losses"
[[ $(evaluations resumed) == $(evaluations plain | tail -n 1) ]] || fail "resumed: another validation"
run_training 2 other "${net[@]}" --resume "$work/plain/checkpoints/step_00000002" --made-images 65
[[ $code -eq 64 ]] || fail "other data: exit code $code, expected 64"

# ---- Batch statistics of two ranks equal those of one rank with all samples ----
runs whole 1 --model resnet18-small --micro-batch 8 --no-save
runs synced 2 "${net[@]}" --no-save --sync-batch-norm
# losses OUT: prints losses by step. Rounding differences between summation orders grow over steps.
losses() { sed -nE 's/^\{"step": [0-9]+, "loss": ([0-9.e-]+).*/\1/p' "$work/$1/metrics.jsonl"; }
paste <(losses whole) <(losses synced) | awk '{ d = $1 - $2; if (d < 0) d = -d
  if (d > 1e-4 * $1) bad = 1 } END { exit bad || NR != 4 }' || fail "synced: other losses"
[[ $(bits synced) != $(bits plain) ]] || fail "synced: the losses of ranks by themselves"

# ---- Exported weights are imported unchanged ----
runs sent 2 "${net[@]}" --no-save --zero 3 --export "$work/sent_out"
[[ -s $work/sent_out/config.json ]] || fail "sent: no config.json"
for ranks in 1 2; do
  run_training "$ranks" "back$ranks" "${net[@]}" --no-save --zero $((ranks + 1)) --steps 0 \
    --init "$work/sent_out" --export "$work/back_out"
  [[ $code -eq 0 ]] && cmp -s "$work/sent_out/model.safetensors" "$work/back_out/model.safetensors" ||
    fail "back$ranks: other weights"
done
weights=$work/sent_out/model.safetensors
run_training 2 saved "${net[@]}" --resume "$work/plain/checkpoints/step_00000004" --no-save \
  --export "$work/plain_out"
cmp -s "$work/plain_out/model.safetensors" "$work/plain_end/model.safetensors" ||
  fail "saved: other weights than at the end of the run"
vit_out=(--model vit-nano --micro-batch 8 --steps 0 --no-save)
run_training 1 small "${vit_out[@]}" --export "$work/small_out"
run_training 1 large "${vit_out[@]}" --pixels 32 --init "$work/small_out" --export "$work/large_out"
[[ $code -eq 0 ]] || fail "large: exit code $code"
grep -q '"img_size": 32' "$work/large_out/config.json" || fail "large: no word of the size"
run_training 1 torchvision "${vit_out[@]}" --init "$work/small_out" --export "$work/tv" --export-names torchvision
[[ $code -eq 0 && ! -e $work/tv/config.json ]] || fail "torchvision: exit code $code"
grep -q 'encoder.layers.encoder_layer_0.self_attention.in_proj_weight' "$work/tv/model.safetensors" ||
  fail "torchvision: other names"
run_training 1 timm "${vit_out[@]}" --init "$work/tv" --export "$work/timm"
cmp -s "$work/timm/model.safetensors" "$work/small_out/model.safetensors" || fail "timm: other weights"

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
onnx 0 'any batch size' "$work/plain_end" --out "$work/again.onnx"
cmp -s "$work"/{plain,again}.onnx || fail "onnx: the export of a run and of its checkpoint differ"
onnx 65 'only runs with --ema have averages' "$work/plain" --out "$work/x.onnx" --ema
onnx 74 'creating the file failed' "$work/plain" --out "$work/missing/x.onnx"
[[ ! -e $work/x.onnx ]] || fail "onnx: a refused export left a file"

# ---- A vision transformer in bf16, from a folder with a damaged file ----
mkdir -p "$work/folder/a" "$work/folder/b"
for i in 1 2 3 4 5 6; do
  for class in a b; do
    printf "$png_pixel" >"$work/folder/$class/$i.png"
  done
done
printf 'torn' >"$work/folder/b/3.png"
vit=(--model vit-nano --data "$work/folder" --val-fraction 0 --no-save --dtype bf16 --micro-batch 8)
run_training 1 torn "${vit[@]}"
[[ $code -eq 65 ]] || fail "torn: exit code $code, expected 65"
grep -q 'b/3.png: neither a PNG nor a JPEG file; 1 image is damaged, expected at most 0' \
  "$work/stderr" || fail "torn: no word of the file"
runs left_out 1 "${vit[@]}" --max-damaged 1
grep -q 'b/3.png: .*; this image is left out' "$work/stderr" || fail "left_out: no word of the file"

# ---- The same images in a tar file, with a damaged one and one without a class ----
mkdir "$work/members"
for i in 1 2 3 4 5 6; do
  cp "$work/folder/a/$i.png" "$work/members/$i.png"
  echo $((i % 2)) >"$work/members/$i.cls"
done
printf 'torn' >"$work/members/3.png"
rm "$work/members/5.cls"
(cd "$work/members" && tar -cf "$work/shard-01.tar" --sort=name .)
tars=("${vit[@]}" --data "$work/shard-{01..01}.tar")
run_training 1 tar "${tars[@]}" --max-damaged 2
[[ $code -eq 0 ]] || fail "tar: exit code $code"
grep -q 'webdataset: 6 training and 0 validation images of 2 classes in 1 tars' "$work/stdout" ||
  fail "tar: no word of its images"
grep -q 'shard-01.tar: ./5 has no .cls; this image is left out' "$work/stderr" || fail "tar: no word of a class"
grep -q 'shard-01.tar, image at byte .*neither a PNG nor a JPEG' "$work/stderr" ||
  fail "tar: no word of what is torn"
run_training 1 tar_strict "${tars[@]}"
[[ $code -eq 65 ]] || fail "tar_strict: exit code $code, expected 65"
grep -q './5 has no .cls; 1 sample is damaged, expected at most 0' "$work/stderr" ||
  fail "tar_strict: no word of why"

# ---- Augmentation: the number of workers and a stop change nothing ----
drawn=(--model vit-nano --micro-batch 4 --randaugment 2,9 --random-erase 0.5 --mixup 0.2 --cutmix 1
  --label-smoothing 0.1)
runs drawn 2 "${drawn[@]}" --save-every 2 --keep 0
grep -q '"data_wait_ms": [0-9]' "$work/drawn/metrics.jsonl" || fail "drawn: no data_wait_ms"
runs drawn_workers 2 "${drawn[@]}" --no-save --workers 3 --zero 2
[[ $(bits drawn_workers) == $(bits drawn) ]] || fail "drawn_workers: other losses"
run_training 2 drawn_on "${drawn[@]}" --resume "$work/drawn/checkpoints/step_00000002"
[[ $code -eq 0 && $(bits drawn_on) == $(bits drawn | tail -n 2) ]] || fail "drawn_on: other losses"
runs undrawn 2 --model vit-nano --micro-batch 4 --no-save
[[ $(bits undrawn) != $(bits drawn) ]] || fail "undrawn: the losses of augmented images"
run_training 2 drawn_other "${drawn[@]}" --cutmix 0 --resume "$work/drawn/checkpoints/step_00000002"
[[ $code -eq 64 ]] || fail "drawn_other: exit code $code, expected 64"

# ---- Refused options ----
for flag in --pipeline --tensor --context; do
  run_training 2 cut "$flag" 2
  [[ $code -eq 64 ]] || fail "$flag: exit code $code, expected 64"
  grep -q -- "$flag 2: residual networks .*; use $flag 1, and data" "$work/stderr" ||
    fail "$flag: no word of why"
done
"$BIN_DIR/shale" plan --check "$work/plain" >"$work/stdout" 2>"$work/stderr"
[[ $? -eq 64 ]] || fail "plan: another exit code than 64"
grep -q 'shale plan supports only train_lm' "$work/stderr" || fail "plan: no word of why"
# refused WORDS CODE FLAGS...: the run ends with exit code CODE and an error with WORDS.
refused() {
  local words=$1 want=$2
  shift 2
  run_training 1 refused "$@"
  [[ $code -eq $want ]] || fail "$*: exit code $code, expected $want"
  grep -q -e "$words" "$work/stderr" || fail "$*: no word of $words"
}
refused 'no effect without --init' 64 --new-head
refused 'expected N,STRENGTH with N from 0 to 16' 64 --randaugment 2
refused 'STRENGTH from 0 to 30' 64 --randaugment 2,31
refused 'randaugment is 2.5,9' 64 --randaugment 2.5,9
refused 'mixup' 64 --mixup 5
refused 'is not a range' 64 --data "$work/x-{3..1}.tar"
refused 'layer1.0.bn1.bias is F32\[64\], unknown' 65 --model vit-nano --init "$weights"
refused 'three numbers from 0 to 1' 64 --mean 0.5,0.5
refused 'use --mean 0.485' 64 --model resnet18-small --init "$work/sent_out" --mean 0.5,0.5,0.5
refused 'no such file or folder' 66 --init "$work/nowhere"
mkdir "$work/two" && cp -r "$work/folder/a" "$work/folder/c" && mv "$work/folder/c" "$work/two" &&
  cp -r "$work/folder/a" "$work/two"
mkdir "$work/one" && cp -r "$work/two/a" "$work/one"
refused 'expected at least two classes, found only a; ' 65 --data "$work/one"
refused 'expected a folder with one folder of images per class, found a file' 65 \
  --data "$(find "$work/two" -name '*.png' | head -n 1)"
classes=(--data "$work/two" --val-fraction 0 --model vit-nano --init "$work/small_out" --micro-batch 8)
refused 'use --new-head for a new classifier.*head.weight is F32\[24,128\], expected' 65 \
  "${classes[@]}" --pixels 16
printf 'PK\003\004' >"$work/net.pth"
refused 'net.pth: zip archive: shorter than an empty archive' 65 --init "$work/net.pth"
run_training 1 new_head "${classes[@]}" --pixels 16 --new-head --no-save
[[ $code -eq 0 ]] || fail "new_head: exit code $code"
run_training 1 none --data "$work/nowhere"
[[ $code -eq 66 ]] || fail "nowhere: exit code $code, expected 66"
run_training 1 odd --model vit-nano --pixels 20
[[ $code -eq 64 ]] || fail "odd: exit code $code, expected 64"

finish
