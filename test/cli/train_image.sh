#!/usr/bin/env bash
# train_image: the same losses, to the bit, in every stage, with recomputation, with several workers
# and after a stop; statistics of all ranks; damaged files; what it refuses.
source "$(dirname "${BASH_SOURCE[0]}")/../support/cli.sh"
shown=("$work/stdout" "$work/stderr")

common=(--data shapes --made-images 64 --pixels 16 --threads 1 --optimizer sgd --lr 0.01 --steps 4
  --global-batch 8 --timeout 60)

# run RANKS OUT FLAGS...: leaves the exit code in `code`.
run() {
  local ranks=$1 out=$2
  shift 2
  timeout 120 mpirun --oversubscribe --bind-to none -np "$ranks" "$BIN_DIR/train_image" \
    "${common[@]}" --out "$work/$out" "$@" >"$work/stdout" 2>"$work/stderr"
  code=$?
}

# bits OUT: of the losses of all steps.
bits() { sed -nE 's/^\{"step": ([0-9]+), .*"loss_bits": ("[0-9a-f]*").*/\1 \2/p' \
  "$work/$1/metrics.jsonl"; }

# evaluations OUT: all that validations have found, but for their time.
evaluations() { grep '"val_loss"' "$work/$1/metrics.jsonl" | sed 's/, "val_ms".*//'; }

# runs NAME RANKS FLAGS...: a run that ends well.
runs() {
  local name=$1 ranks=$2
  shift 2
  run "$ranks" "$name" "$@"
  [[ $code -eq 0 && $(bits "$name" | wc -l) -eq 4 ]] || fail "$name: exit code $code"
}

# ---- A residual network on two ranks: stages, and a stop ----
net=(--model resnet18-small --micro-batch 4)
runs plain 2 "${net[@]}" --eval-every 2 --save-every 2 --keep 0
shares='"val_top1": [0-9.e-]*, "val_top5": [0-9.e-]*, "val_images": 6'
[[ $(evaluations plain | grep -c "$shares") -eq 2 ]] || fail "plain: no shares of images"
grep -q 'top 1: ' "$work/stdout" || fail "plain: no word of the shares"
for stage in 1 2 3; do
  runs "zero$stage" 2 "${net[@]}" --zero "$stage" --no-save --eval-every 2
  [[ $(bits "zero$stage") == $(bits plain) ]] || fail "zero$stage: other losses"
  [[ $(evaluations "zero$stage") == $(evaluations plain) ]] || fail "zero$stage: another validation"
done
# Of two validations, two images each.
runs shown 2 "${net[@]}" --no-save --eval-every 2 --tensorboard --tensorboard-images 2 --ema 0.5 \
  --evaluate-ema
[[ $(bits shown) == $(bits plain) ]] || fail "images for TensorBoard: other losses"
for image in 1 2; do
  [[ $(cat "$work"/shown/tensorboard/* | grep -ao "validation/image_$image" | wc -l) -eq 2 ]] ||
    fail "images for TensorBoard: not image $image of each validation"
done
[[ $(cat "$work"/shown/tensorboard/* | grep -aoF $'\x89PNG' | wc -l) -eq 4 ]] ||
  fail "images for TensorBoard: no PNG files"
run 1 unseen "${net[@]}" --tensorboard-images 2 --eval-every 2
[[ $code -eq 64 ]] && grep -q 'want --tensorboard and --eval-every' "$work/stderr" ||
  fail "--tensorboard-images alone: exit code $code, want 64"
runs again 2 "${net[@]}" --zero 2 --no-save --recompute full --workers 3 --eval-every 2
[[ $(bits again) == $(bits plain) ]] || fail "recompute: other losses"
[[ $(evaluations again) == $(evaluations plain) ]] || fail "recompute: another validation"
run 2 resumed "${net[@]}" --resume "$work/plain/checkpoints/step_00000002" --zero 3 --eval-every 2
[[ $code -eq 0 && $(bits resumed) == $(bits plain | tail -n 2) ]] || fail "resumed: other losses"
[[ $(evaluations resumed) == $(evaluations plain | tail -n 1) ]] || fail "resumed: another validation"
run 2 other "${net[@]}" --resume "$work/plain/checkpoints/step_00000002" --made-images 65
[[ $code -eq 64 ]] || fail "other data: exit code $code, want 64"

# ---- Statistics of both ranks' samples are those of one rank with all of them ----
runs whole 1 --model resnet18-small --micro-batch 8 --no-save
runs synced 2 "${net[@]}" --no-save --sync-batch-norm
# losses OUT: by step. Sums in other orders differ by roundings, which a few steps let grow.
losses() { sed -nE 's/^\{"step": [0-9]+, "loss": ([0-9.e-]+).*/\1/p' "$work/$1/metrics.jsonl"; }
paste <(losses whole) <(losses synced) | awk '{ d = $1 - $2; if (d < 0) d = -d
  if (d > 1e-4 * $1) bad = 1 } END { exit bad || NR != 4 }' || fail "synced: other losses"
[[ $(bits synced) != $(bits plain) ]] || fail "synced: the losses of ranks by themselves"

# ---- A vision transformer in bf16, from a folder with a damaged file ----
mkdir -p "$work/folder/a" "$work/folder/b"
# A PNG file of one gray pixel, as printf wants it.
pixel='\211\120\116\107\015\012\032\012\000\000\000\015\111\110\104\122\000\000\000\001\000\000\000'
pixel+='\001\010\000\000\000\000\072\176\233\125\000\000\000\012\111\104\101\124\170\234\143\160\000'
pixel+='\000\000\102\000\101\051\067\364\357\000\000\000\000\111\105\116\104\256\102\140\202'
for i in 1 2 3 4 5 6; do
  for class in a b; do
    printf "$pixel" >"$work/folder/$class/$i.png"
  done
done
printf 'torn' >"$work/folder/b/3.png"
vit=(--model vit-nano --data "$work/folder" --val-fraction 0 --no-save --dtype bf16 --micro-batch 8)
run 1 torn "${vit[@]}"
[[ $code -eq 65 ]] || fail "torn: exit code $code, want 65"
grep -q 'b/3.png: neither a PNG nor a JPEG file; 1 image is damaged, want at most 0' \
  "$work/stderr" || fail "torn: no word of the file"
runs left_out 1 "${vit[@]}" --max-damaged 1
grep -q 'b/3.png: .*; left out' "$work/stderr" || fail "left_out: no word of the file"

# ---- What cannot be ----
for flag in --pipeline --tensor --tensor-leaves --context --context-leaves; do
  run 2 cut "$flag" 2
  [[ $code -eq 64 ]] || fail "$flag: exit code $code, want 64"
  grep -q -- "$flag 2: models of images .*; want 1, and ranks of data" "$work/stderr" ||
    fail "$flag: no word of why"
done
"$BIN_DIR/shale" plan --check "$work/plain" >"$work/stdout" 2>"$work/stderr"
[[ $? -eq 64 ]] || fail "plan: another exit code than 64"
grep -q 'shale plan knows the options of train_lm alone' "$work/stderr" || fail "plan: no word of why"
run 1 none --data "$work/nowhere"
[[ $code -eq 66 ]] || fail "nowhere: exit code $code, want 66"
run 1 odd --model vit-nano --pixels 20
[[ $code -eq 64 ]] || fail "odd: exit code $code, want 64"

finish
