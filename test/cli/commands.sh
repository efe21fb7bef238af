#!/usr/bin/env bash
# Checks the commands in the code blocks of the pages. Each command is parsed by its program. It is
# also run, unless test/fixtures/commands_not_run.txt gives a reason not to. The commands of a page
# run in order in one folder, with shortened trainings. If README.md or a tutorial shows output,
# programs must print it, except for numbers.
source "$(dirname "${BASH_SOURCE[0]}")/../support/cli.sh"

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
not_run=$root/test/fixtures/commands_not_run.txt
export OMP_NUM_THREADS=1 OMPI_MCA_rmaps_base_oversubscribe=1

# commands PAGE: prints the page's commands, one per line, each after the number of its code block.
# Leaves out comments and code in other languages.
commands() {
  awk '
    /^```/ { fenced = !fenced; is_shell = fenced && /^```(sh|bash)$/; block += is_shell; next }
    fenced && !is_shell { next }
    !fenced && !/^    / {
      in_code = in_code && /^$/
      after_blank = /^$/
      next
    }
    !fenced && !in_code && !after_blank { next }
    {
      if (!in_code && !fenced) in_code = ++block
      line = fenced ? $0 : substr($0, 5)
      sub(/(^|[ \t])#( .*)?$/, "", line)
      sub(/[ \t]+$/, "", line)
      command = continues ? command " " line : line
      continues = sub(/ *\\$/, "", command)
      if (!continues && command != "") print block, command
    }' "$1"
}

# is_parsed COMMAND...: checks that each program parses its arguments; launchers are removed first.
is_parsed() {
  case "$1" in
    mpirun | srun)
      local programs='train_lm|train_image|train_diffusion|shale|bench_collectives'
      while [[ $# -gt 0 && ! $1 =~ (^|/)($programs)$ ]]; do shift; done
      [[ $# -gt 0 ]] && is_parsed "$@" ;;
    train_lm | */train_lm) "$BIN_DIR/train_lm" "${@:2}" --print-config ;;
    bench_collectives) "$BIN_DIR/$1" "${@:2}" --print-config ;;
    bench_kernels) "$BIN_DIR/$1" "${@:2}" --list ;;
    train_image | */train_image) "$BIN_DIR/train_image" "${@:2}" --print-config ;;
    train_diffusion | */train_diffusion) "$BIN_DIR/train_diffusion" "${@:2}" --print-config ;;
    shale | */shale)
      local flags=()
      while [[ $# -gt 0 && $1 != -- && $1 != '>' ]]; do flags+=("$1"); shift; done
      "$BIN_DIR/shale" "${flags[@]:1}" --print-config || return
      if [[ ${1:-} == -- ]]; then is_parsed "${@:2}"; fi ;;
    sbatch)
      shift
      while [[ $1 == --* ]]; do shift; done
      bash -n "$root/$1" && is_parsed train_lm "${@:2}" ;;
    ./*.sh) bash -n "$root/$1" && "$root/$1" --help | grep -F -- "${2:---help}" ;;
    cmake)
      [[ $2 != --preset ]] || (cd "$root" && cmake --list-presets | grep -F "\"$3\"") ;;
    ctest) (cd "$root" && ctest --list-presets | grep -F "\"$3\"") ;;
    awk) [[ -e $root/$3 ]] ;;
    cc) [[ $2 == -std=c* ]] ;;
    cpack) [[ $2 == --config ]] ;;
    apt-get | */pip) [[ $2 == install ]] ;;
    python3) [[ $2 == -m || -e $root/$2 ]] ;;
    tensorboard) [[ $2 == --logdir ]] ;;
    export) [[ $2 == SHALE_TOKEN=* ]] ;;
    torchrun) [[ " $* " == *' --no-python shale join -- train '* ]] ;;
    *) echo "no rule for $1"; return 1 ;;
  esac
}

# reason PAGE COMMAND: prints why the command is not run, or nothing if it is run. Notes which lines
# of the list were used.
reason() {
  awk -F ' [|] ' -v page="$1" -v command="$2" -v used="$work/used" '
    !/^#/ && $1 == page && index(command, $2) == 1 { print $3; print >>used; exit }' "$not_run"
}

# Creates files that stand in for the reader's own.
prepare() {
  mkdir -p "$work/bin" "$work/base/corpus" "$work/base/build/release"
  cat >"$work/bin/train_lm" <<SHIM
#!/usr/bin/env bash
# A flag given twice takes its last value, so these override the page's.
exec "$BIN_DIR/train_lm" "\$@" --steps 100 --save-every 50 --layers 1 --width 16 --heads 2 --threads 1 \
  --seq-len 16 --micro-batch 1 --timeout 60
SHIM
  cat >"$work/bin/train_image" <<SHIM
#!/usr/bin/env bash
exec "$BIN_DIR/train_image" "\$@" --steps 2 --made-images 32 --pixels 32 --micro-batch 2 --threads 1 \
  --timeout 60
SHIM
  sed '2s/train_image/train_diffusion/' "$work/bin/train_image" >"$work/bin/train_diffusion"
  chmod +x "$work/bin"/train_*
  ln -s "$BIN_DIR/shale" "$work/bin/shale"
  cd "$work/base" || exit 1
  ln -s "$work/bin" build/release/bin
  ln -s "$root/docs" "$root/deploy" .
  local i
  for i in {1..60}; do sed "s/the/the $i/" "$root/docs/explanation/numerics.md"; done >my.txt
  for i in 1 2 3; do cp my.txt "corpus/$i.txt"; done
  for i in out other; do
    train_lm --data my.txt --out "$i" >"$work/output" 2>&1 || fail "prepare $i: exit code $?"
  done
  cp my.txt more.txt
  cp -r out out2
  cp -r other out3
  echo '{"zero": 1}' >layout.json
  echo '{"train_micro_batch_size_per_gpu": 1, "gradient_clipping": 1.0}' >ds_config.json
}
PATH=$work/bin:$PATH
prepare

# shape FILE...: prints the lines of the files with N instead of numbers, and without units that
# depend on the numbers.
shape() {
  sed -E 's/[0-9]+([.][0-9]+)?[kM]?/N/g; s/N [KMG]iB/N B/g; s/Nm Ns/Ns/g; s/, (chosen by a hash|from the end) of.*//
    s/ +/ /g; s/(layer|head|file|rank|class|image)(es|s)?\b/\1/g; s/saved in .*/saved/' "$@"
}

# shows_output PAGE: checks each line of output on the page. The page's commands must have printed
# it, except for numbers.
shows_output() {
  local line lines=0
  shape "$work/printed" | sort -u >"$work/shapes"
  while IFS= read -r line; do
    lines=$((lines + 1))
    grep -qxF -- "$line" "$work/shapes" || fail "$1: no program prints: $line"
  done < <(grep -E '^ *(text: |shapes: |model |[a-z]+-nano: |step +[0-9]|saved |sample:|done: )' "$root/$1" |
    sed 's/^    //' | shape)
  [[ $lines -ge 3 ]] || fail "$1: only $lines lines of output"
}

# check_page PAGE: checks all commands of the page.
check_page() {
  local page=$1 block command why without=
  local -a words
  rm -rf "$work/page"
  cp -r "$work/base" "$work/page"
  cd "$work/page" || exit 1
  : >"$work/printed"
  while read -r block command; do
    [[ $block == "$without" ]] && continue
    why=$(reason "$page" "$command")
    if [[ $why == 'no command'* ]]; then without=$block; continue; fi
    count=$((count + 1))
    mapfile -t words < <(xargs -n 1 printf '%s\n' <<<"${command%%&&*}")  # ...  # it parses quotes
    is_parsed "${words[@]}" >"$work/output" 2>&1 || { fail "$page: not parsed: $command"; continue; }
    [[ -n $why ]] && continue
    ran=$((ran + 1))
    # Each training of a page starts afresh in the same folder.
    if [[ $command == *train_* && ! $command =~ --resume|--init\ out ]]; then rm -rf out; fi
    timeout 120 bash -c "$command" >"$work/output" 2>&1 </dev/null ||
      fail "$page: exit code $?: $command"
    cat "$work/output" >>"$work/printed"
  done < <(commands "$root/$page")
}

count=0
ran=0
mapfile -t pages < <(cd "$root" && ls README.md CONTRIBUTING.md docs/{,*/}*.md examples/*.md)
for page in "${pages[@]}"; do
  check_page "$page"
  case "$page" in
    README.md)
      train_lm --data my.txt --out shown --eval-every 50 --sample-tokens 20 >"$work/printed" 2>&1
      shows_output "$page" ;;
    docs/tutorials/first_model.md | docs/tutorials/images.md | docs/tutorials/diffusion.md)
      shows_output "$page" ;;
  esac
done
[[ $count -ge 40 && $ran -ge 20 ]] || fail "only $count commands were found, and $ran run"
grep -v '^#' "$not_run" | sort >"$work/lines"
sort -u "$work/used" | comm -23 "$work/lines" - >"$work/output"
[[ -s $work/output ]] && fail 'lines of commands_not_run.txt that fit no command'

# Verifies that the checks can fail.
printf 'x\n\n    train_lm --data my.txt --no-such-flag 3\n    shale trace report gone.json\n' \
  >"$work/wrong.md"
(
  root=$work
  shown=()
  check_page wrong.md
) >"$work/said" 2>/dev/null
grep -q 'not parsed: train_lm --data my.txt --no-such-flag' "$work/said" &&
  grep -q 'exit code 66: shale trace report gone.json' "$work/said" || fail 'nothing can fail here'
printf '    step 1/3 33%% | loss 2\n    saved step 3\n    step 3/3 | loss 2 tok/s\n' >"$work/wrong.md"
echo 'saved step 7' >"$work/printed"
(
  root=$work
  shown=()
  shows_output wrong.md
) >"$work/said" 2>/dev/null
[[ $(grep -c 'no program prints: step' "$work/said") -eq 2 ]] || fail 'no shown output can fail here'

finish "$count commands parsed, $ran run"
