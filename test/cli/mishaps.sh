#!/usr/bin/env bash
# Tests accidents: two runs in one folder; data of another run; data that is truncated or
# overwritten while being read; signals at bad moments; ranks stopped before the ranks have
# connected. Each run ends with its exit code and one error line, and status.json agrees.
source "$(dirname "${BASH_SOURCE[0]}")/../support/cli.sh"

train="$BIN_DIR/train_lm"
cd "$work" || exit 1
yes 'a line of text to learn from' | head -n 2000 >text.txt
small=(--layers 1 --width 32 --heads 2 --seq-len 16 --micro-batch 1 --threads 1)
mpi=(mpirun --oversubscribe --bind-to none)
# run CODE WORDS -- COMMAND...: checks the exit code, and that the only error line contains the
# words. With code 0 there must be no error line.
run() {
  local want=$1 words=$2
  shift 3
  timeout -k 5 60 "$@" >output 2>&1
  ended $? "$want" "$words" "$*"
}
ended() {  # arguments: CODE WANT WORDS WHAT
  [[ $1 -eq $2 ]] || fail "$4: exit code $1, expected $2"
  [[ -z $3 ]] && return
  local lines
  lines=$(grep -c '^error:' output)
  [[ $lines -eq 1 ]] || fail "$4: $lines error lines, expected 1"
  grep '^error:' output | grep -qF -- "$3" || fail "$4: no '$3'"
}
status() {  # arguments: OUT STATE CODE
  local found
  found=$(tr -d ' \n' <"$1/status.json" 2>&1)
  [[ $found == *"\"state\":\"$2\""*"\"exit_code\":$3,"* ]] ||
    fail "$1/status.json: $found, expected $2, $3"
}
wait_for_rows() {  # arguments: OUT COUNT
  for _ in $(seq 600); do
    [[ $(cat "$1/metrics.jsonl" 2>/dev/null | wc -l) -ge $2 ]] && return
    sleep 0.05
  done
  fail "$1 never had $2 rows"
}
# Wrapper of a rank's command: runs it in a new folder and stores its process number in a
# file.
cat >as_rank <<'END'
#!/bin/sh
echo $$ >"$WORK/pid.$JOB.$OMPI_COMM_WORLD_RANK"
cd "$WORK/rank$OMPI_COMM_WORLD_RANK" && exec "$@"
END
chmod +x as_rank
export WORK=$work JOB=0
mkdir rank0 rank1

# ---- Two runs in one folder ----
"${mpi[@]}" -np 2 "$train" "${small[@]}" --data text.txt --out both --steps 1000000 --save-every 5 \
  >first 2>&1 &
first=$!
wait_for_rows both 20
starts=()
for resume in none auto; do
  timeout -k 5 60 "$train" "${small[@]}" --data text.txt --out both --steps 30 --resume $resume \
    >second.$resume 2>&1 &
  starts+=($! $resume)
done
for ((i = 0; i < ${#starts[@]}; i += 2)); do
  wait "${starts[i]}"
  code=$?
  cp "second.${starts[i + 1]}" output
  ended $code 64 'is in use by process' "a second start, --resume ${starts[i + 1]}"
done
kill -USR1 $first
wait $first
code=$?
cp first output
ended $code 75 '' 'the run that was there'
status both saved 75
[[ -e both/lock ]] && fail 'the lock is left behind'
# A refused start leaves existing files unchanged.
mkdir both/checkpoints/step_00000001.tmp-0123456789abcdef
(cd both && find . -printf '%p %s %T@\n' | grep -v '^\. ' | sort) >before
run 64 'has checkpoints' -- "$train" "${small[@]}" --data text.txt --out both --steps 30
run 64 '--seed was' -- "$train" "${small[@]}" --data text.txt --out both --steps 1000000 --seed 7 \
  --resume auto
# Warnings of the refused start are not added to those of the run.
run 64 '--lr was' -- "$train" "${small[@]}" --data text.txt --out both --steps 1000000 --lr 0.5 \
  --resume auto
grep -q 'warning: .*--lr 0.5 is far from' output || fail 'a refused start: no warning'
(cd both && find . -printf '%p %s %T@\n' | grep -v '^\. ' | sort) >after
cmp -s before after || fail "a refused start changed $(diff before after)"

# ---- Data with other content ----
run 0 '' -- "$train" "${small[@]}" --data text.txt --out mine --steps 2
mkdir other
tr 'a-y' 'b-z' <text.txt >other/text.txt
run 64 'the training data checksum was' -- "$train" "${small[@]}" --data other/text.txt \
  --out mine --steps 2 --resume auto
cp text.txt rank0/text.txt
cp other/text.txt rank1/text.txt
run 76 'training data checksum: rank 0 has' -- "${mpi[@]}" -np 2 ./as_rank "$train" "${small[@]}" \
  --data text.txt --out "$work/ranks" --steps 2

# In images and latents, one byte changes. Names, sizes and labels stay the same.
mkdir -p images/a images/b latents
for i in 1 2 3 4; do
  for class in a b; do printf "${png_pixel}x" >images/$class/$i.png; done
done
for class in 0 1; do
  cp images/a/1.png $class.png
  echo $class >$class.cls
done
tar -cf images.tar 0.png 0.cls 1.png 1.cls
write_latents latents/a.safetensors
# other_content PROGRAM DATA FILE OFFSET FLAGS...: changes the byte at OFFSET of FILE, which is part
# of DATA.
other_content() {
  local program=$BIN_DIR/$1 data=$2 file=$3 at=$4
  shift 4
  local flags=(--data "$data" --val-fraction 0 --micro-batch 1 --global-batch 2 --threads 1
    --steps 1 "$@")
  run 0 '' -- "$program" "${flags[@]}" --out "of_$data"
  run 0 '' -- "$program" "${flags[@]}" --out "of_$data" --resume auto
  cp -r "$data" rank0
  cp -r "$data" rank1
  printf y | dd of="rank1/$file" bs=1 seek="$at" conv=notrunc status=none
  cmp -s "rank0/$file" "rank1/$file" && fail "$file: no byte has changed"
  run 76 'image content checksum: rank 0 has' -- "${mpi[@]}" -np 2 ./as_rank "$program" \
    "${flags[@]}" --out "$work/ranks_$data"
  cp "rank1/$file" "$file"
  run 64 'the image content checksum was' -- "$program" "${flags[@]}" --out "of_$data" --resume auto
}
end=$(stat -c %s 1.png)
other_content train_image images images/b/3.png $((end - 1)) --model vit-nano --pixels 16
other_content train_image images.tar images.tar $((512 + end - 1)) --model vit-nano --pixels 16
other_content train_diffusion latents latents/a.safetensors 1000 --patch 2 --samples 0

# ---- Data that is truncated or overwritten while it is read ----
for ranks in 1 2; do
  launcher=()
  [[ $ranks -gt 1 ]] && launcher=("${mpi[@]}" -np $ranks)
  cp text.txt shrinks.txt
  timeout -k 5 60 ${launcher[@]+"${launcher[@]}"} "$train" "${small[@]}" --data shrinks.txt \
    --out "shrinks$ranks" --steps 1000000 --no-save >output 2>&1 &
  job=$!
  wait_for_rows "shrinks$ranks" 5
  truncate -s 0 shrinks.txt
  wait $job
  ended $? 65 'shrinks.txt: had 58000 bytes' "$ranks ranks with data that shrinks"
  status "shrinks$ranks" failed 65
done
# One of two ranks reads invalid tokens while the other one is in a long step.
perl -e 'print pack("S<*", map { $_ % 900 } 0 .. 199999)' >rank0/tokens.bin
cp rank0/tokens.bin rank1/tokens.bin
timeout -k 5 60 "${mpi[@]}" -np 2 ./as_rank "$train" --data tokens.bin --data-format nanogpt \
  --vocab 1000 --layers 4 --width 256 --heads 4 --seq-len 256 --micro-batch 8 --threads 1 \
  --no-save --out "$work/tokens" >output 2>&1 &
job=$!
wait_for_rows tokens 2
perl -e 'print "\xff" x 400000' | dd of=rank1/tokens.bin conv=notrunc status=none
wait $job
ended $? 65 'token 65535 at position' 'a rank with bad tokens'
status tokens failed 65
grep -q 'Signal:' output && fail 'a rank crashed while the job ended'

# ---- Signals ----
"$train" "${small[@]}" --data text.txt --out again --steps 1000000 >output 2>&1 &
job=$!
wait_for_rows again 5
while kill -TERM $job 2>/dev/null; do sleep 0.01; done
wait $job
ended $? 75 '' 'SIGTERM again and again'
status again saved 75
rm -f pid.*
timeout -k 5 60 "${mpi[@]}" -np 2 ./as_rank "$train" "${small[@]}" --data "$work/text.txt" \
  --out "$work/storm" --steps 1000000 >output 2>&1 &
job=$!
wait_for_rows storm 5
pids=$(cat pid.0.?)
while kill -TERM $pids 2>/dev/null && kill -USR1 $pids 2>/dev/null; do sleep 0.01; done
wait $job
ended $? 75 '' 'two ranks, SIGTERM and SIGUSR1 again and again'
status storm saved 75
# Interrupts a run that waits for a lock: data has been read, but no step was made.
mkdir early
exec 8>early/lock
flock 8
"$train" "${small[@]}" --data text.txt --out early --steps 1000000 >output 2>&1 8>&- &
job=$!
until grep -qs text.txt /proc/$job/maps; do sleep 0.01; done
sleep 0.3
kill -TERM $job
exec 8>&-
wait $job
ended $? 75 '' 'SIGTERM before the first step'
grep -q 'there was nothing to save' output || fail 'SIGTERM before the first step: a step was made'
status early saved 75
(
  ulimit -f 8
  run 74 'File too large' -- "$train" "${small[@]}" --data text.txt --out large --steps 500
  exit $((failures > 0))
) || failures=$((failures + 1))
status large failed 74
mkfifo silent
exec 8<>silent  # a pipe that is open and never gets data
timeout -k 5 60 "$train" "${small[@]}" --data - --out reading <silent >output 2>&1 &
job=$!
for _ in $(seq 200); do
  grep -q '^reading standard input' output && break
  sleep 0.05
done
kill -TERM "$(pgrep -P $job)"
wait $job
ended $? 75 'stopped while reading standard input' 'SIGTERM while data is read'
exec 8>&-
"$train" "${small[@]}" --data text.txt --out pipe --steps 30 2>errors | head -n 1 >output
[[ ${PIPESTATUS[0]} -eq 0 && $(wc -l <pipe/metrics.jsonl) -eq 30 ]] ||
  fail 'output that nobody reads'

# ---- A rank that is stopped before the ranks have connected ----
stop_rank_after() {  # arguments: DELAY
  local job
  JOB=stop$1 timeout -k 2 20 "${mpi[@]}" -np 2 ./as_rank "$train" "${small[@]}" \
    --data "$work/text.txt" --timeout 0.5 --out "$work/stopped.$1" --steps 1000000 --no-save \
    >"output.$1" 2>&1 &
  job=$!
  until [[ -s pid.stop$1.1 ]]; do sleep 0.01; done
  sleep "$1"
  kill -STOP "$(cat "pid.stop$1.1")"
  wait $job
}
stops=()
for delay in 0 0.1 0.2 0.4; do
  stop_rank_after $delay &
  stops+=($! $delay)
done
for ((i = 0; i < ${#stops[@]}; i += 2)); do
  wait "${stops[i]}"
  code=$?
  # The stopped rank is resumed, so that it can be ended. It may then report that the other rank is
  # gone.
  sed '/^error:.*(rank 1 of 2)$/d' "output.${stops[i + 1]}" >output
  # On a busy machine, Open MPI's own abort sometimes hangs after an error of Open MPI.
  [[ $code -ge 124 ]] && grep -q 'PMIX ERROR' output && code=76
  ended $code 76 'rank 1' "a rank that is stopped after ${stops[i + 1]} s"
done

# ---- Small cases ----
run 0 '' -- "$train" "${small[@]}" --data text.txt --out evaluated --steps 0 --eval-every 1
grep -q 'val_loss' evaluated/metrics.jsonl || fail 'no evaluation without a step'
run 64 'found '"'"'a\x0ab'"'" -- "$train" "${small[@]}" --data text.txt --out $'a\nb'
# Other folder names must work, and output must not be written through symbolic links in the folder.
odd='a "b" %s it'"'"'s \d ü'
mkdir "$odd"
echo mine >planted
ln -s "$work/planted" "$odd/metrics.jsonl"
ln -s "$work/planted" "$odd/status.json"
run 0 '' -- "$train" "${small[@]}" --data text.txt --out "$odd" --steps 4 --save-every 2 \
  --schedule constant
status "$odd" done 0
run 0 '' -- "$train" "${small[@]}" --data text.txt --out "$odd" --steps 6 --save-every 2 \
  --schedule constant --resume auto
grep -q 'after 4 steps' output || fail "nothing to resume from in '$odd'"
[[ $(cat planted) == mine ]] || fail 'a link in an output folder was written through'
cp -r mine renamed
mv renamed/checkpoints/step_0000000{2,9}
run 65 'step_00000009: manifest.json has step 2' -- "$train" "${small[@]}" --data text.txt \
  --out renamed --steps 2 --resume auto
# Requests more threads than the system allows. The memory limit is little more than the program
# needs in this build; with much less, oneDNN crashes.
loaded=60000
{ until (ulimit -v $loaded && "$train" --version); do loaded=$((loaded + 2000)); done; } \
  >output 2>&1
for more in 46000 50000 54000 64000; do
  kib=$((loaded + more))
  (ulimit -v $kib && timeout 60 "$train" "${small[@]}" --data text.txt --out limited --steps 2 \
    --threads 2) >output 2>&1
  code=$?
  [[ $code -eq 0 || $code -eq 71 ]] || fail "ulimit -v $kib: exit code $code, expected 0 or 71"
  rm -rf limited
done
"$train" "${small[@]}" --data text.txt --out moved --steps 1000000 --save-every 50 >output 2>&1 &
job=$!
wait_for_rows moved 20
kill -STOP $job  # keeps it from creating the folder again
mv moved elsewhere
touch moved  # a regular file, in which no folder can be created
kill -CONT $job
until grep -q 'training goes on' output || ! kill -0 $job 2>/dev/null; do sleep 0.02; done
rm moved  # from here on, the folder can be created again
until [[ -e moved/checkpoints/latest ]] || ! kill -0 $job 2>/dev/null; do sleep 0.02; done
kill -TERM $job
wait $job
ended $? 75 '' 'an output folder that is moved away'
grep -q 'tried again within 1 min' output || fail 'an output folder that is moved away: no warning'
status moved saved 75
# The supervisor writes the status that a killed run could not write.
"$BIN_DIR/shale" run --max-restarts 0 -- "$train" "${small[@]}" --data text.txt --out killed \
  --steps 1000000 >output 2>&1 &
job=$!
wait_for_rows killed 5
kill -KILL "$(pgrep -P $job -x train_lm)"
wait $job
ended $? 137 '' 'a killed run'
status killed failed 137

finish
