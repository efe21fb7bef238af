#!/usr/bin/env bash
# Counts the data files that each rank opens. On each host, one rank looks at all files, and every
# other rank opens only those that it reads from. Losses have the bits of one rank.
source "$(dirname "${BASH_SOURCE[0]}")/../support/cli.sh"
shown=("$work/stdout" "$work/stderr")
[[ -n ${FAULT_LIBRARY:-} ]] || { echo "skipped: no library that sees the disk calls"; exit 4; }

files=200
mkdir "$work/shards" "$work/text" "$work/latents"
text=$(tr -cd '[:print:]' <"${BASH_SOURCE[0]}")
for ((i = 0; i < files; ++i)); do
  # The header of llm.c: magic number, version, 50 tokens.
  { printf '\x88\xd8\x34\x01\1\0\0\0\x32\0\0\0'; head -c 1012 /dev/zero; printf %s "${text:i:100}"; } \
    >"$work/shards/train_$i.bin"
  printf '%s' "${text:i:100}" >"$work/text/$i.txt"
done
write_latents "$work/latents.0"
tee <"$work/latents.0" >/dev/null $(printf "$work/latents/%d.safetensors " $(seq "$files"))

# A rank's calls are logged in $work/opens.RANK.
export FAULT_LIBRARY SHALE_FAULT_UNDER=$work
cat >"$work/logged" <<END
#!/bin/sh
rank=\${OMPI_COMM_WORLD_RANK:-\${PMI_RANK:-0}}
SHALE_FAULT_LOG=$work/opens.\$rank LD_PRELOAD=$FAULT_LIBRARY exec "\$@"
END
chmod +x "$work/logged"
opens() { grep -ao "$work/[a-z]*/\(train_\)\?[0-9]*\.\(bin\|txt\|safetensors\)" "$work/opens.$1" 2>/dev/null | wc -l; }

run=(--micro-batch 1 --global-batch 4 --steps 3 --threads 1 --val-fraction 0 --no-save
  --reproducible --timeout 60)
for data in latents shards text; do
  program=train_lm common=("${run[@]}" --model nano --seq-len 16)
  [[ $data != latents ]] || program=train_diffusion common=("${run[@]}" --patch 2 --samples 0)
  trains "alone-$data" 1 --data "$work/$data"
  rm -f "$work"/opens.*
  launch 2 "$work/logged" "$BIN_DIR/$program" "${common[@]}" --data "$work/$data" \
    --out "$work/two-$data" >"$work/stdout" 2>"$work/stderr" || fail "$data: exit code $?"
  same "two-$data" "alone-$data"
  first=$(opens 0) second=$(opens 1)
  [[ $first -ge $files ]] || fail "$data: rank 0 opened $first files, expected all $files"
  # Rank 1's six samples are in at most twelve files. Some batches are made ahead.
  [[ $second -gt 0 && $second -lt $((files / 4)) ]] || fail "$data: rank 1 opened $second files"
  counts+=" $data $first and $second"
done

# If the rank that looks at all files finds an error, all ranks end with it: one line, and its exit
# code.
printf x >>"$work/shards/train_7.bin"
run_training 2 broken --data "$work/shards"
[[ $code -eq 65 ]] || fail "broken: exit code $code, expected 65"
[[ $(grep -c '^error: ' "$work/stderr") -eq 1 ]] || fail "broken: not one error"
grep -q 'error: .*train_7.bin: the header says' "$work/stderr" || fail "broken: another error"

finish "opened$counts of $files files"
