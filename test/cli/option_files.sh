#!/usr/bin/env bash
# Tests the shell completions and manual pages generated from the programs' options: each option of
# --help is in each file, shells can parse them, and bash offers the right words.
source "$(dirname "${BASH_SOURCE[0]}")/../support/cli.sh"

awk=$(command -v awk) || { echo 'skipped: no awk is installed'; exit 4; }
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)

make_files() {  # arguments: PROGRAM
  "$BIN_DIR/$1" --help table >"$work/$1.table" || fail "$1 --help table: exit code $?"
  for kind in bash zsh fish man; do
    "$awk" -v kind=$kind -v program="$1" -v version=test -f "$root/cmake/option_files.awk" \
      "$work/$1.table" $([[ $kind == man ]] && echo "$root/docs/reference/files.md") >"$work/$1.$kind" ||
      fail "$1: no $kind"
  done
}

# The options that --help lists.
flags_of() { "$BIN_DIR/$1" "${@:2}" --help all | grep -oE '^  --[a-z0-9-]+' | tr -d ' '; }

has_all() {  # arguments: PROGRAM [TOOL...]
  local program=$1 flag flags
  flags=$(flags_of "$@")
  [[ $(wc -w <<<"$flags") -ge 4 ]] || fail "$*: --help lists hardly an option"
  for flag in $flags; do
    grep -qE -- "[' ]$flag " "$work/$program.bash" || fail "$*: bash lacks $flag"
    grep -qE -- "'$flag[=[]" "$work/$program.zsh" || fail "$*: zsh lacks $flag"
    grep -qE -- " -l ${flag#--} " "$work/$program.fish" || fail "$*: fish lacks $flag"
    grep -qF -- "fB${flag//-/\\-}\\fR" "$work/$program.man" || fail "$*: the manual lacks $flag"
  done
}

for program in train_lm train_image train_diffusion shale; do make_files $program; done
[[ $failures == 0 ]] || finish
has_all train_lm
has_all train_image
has_all train_diffusion
for tool in doctor report watch metrics run; do has_all shale $tool; done
for action in inspect verify diff reshard export; do has_all shale ckpt $action; done
has_all shale trace report

# --help is short and names the groups of options. In --help all, each flag starts a line.
for program in train_lm train_image train_diffusion; do
  "$BIN_DIR/$program" --help >"$work/output" || fail "$program --help: exit code $?"
  [[ $(wc -l <"$work/output") -le 60 ]] || fail "$program --help: more than 60 lines"
  "$BIN_DIR/$program" --help all >"$work/all"
  flags=$(grep -cE '^  --[a-z]' "$work/all")
  [[ $flags -le 130 && $(grep -cE '^ +--[a-z]' "$work/all") -eq $flags ]] ||
    fail "$program: $flags flags, expected at most 130, each alone at the beginning of a line"
  sum=0
  for group in $(sed -n '/^Groups/,$p' "$work/output" | sed 's/.*GROUP://' | tr -d ','); do
    "$BIN_DIR/$program" --help "$group" >"$work/group" || fail "$program --help $group: exit code $?"
    sum=$((sum + $(grep -cE '^  --[a-z]' "$work/group")))
  done
  [[ $sum -eq $flags ]] || fail "$program: $sum flags in groups, $flags in all"
  "$BIN_DIR/$program" --help nothing >"$work/output" 2>&1
  [[ $? -eq 64 ]] && grep -q "groups are data, " "$work/output" || fail "$program: a group 'nothing'"
done

# Every shell must be able to parse its files.
checked=
for shell in bash zsh fish; do
  command -v $shell >/dev/null || continue
  for program in train_lm train_image train_diffusion shale; do
    $shell -n "$work/$program.$shell" >"$work/output" 2>&1 ||
      fail "$program: $shell does not read it"
  done
  checked+=" $shell"
done

# offers WORD...: prints what bash offers for a command line whose last word is incomplete.
offers() {  # arguments: WORD...
  local program=$1
  ( # shellcheck disable=SC1090
    source "$work/$program.bash"
    COMP_WORDS=("$@")
    COMP_CWORD=$(($# - 1))
    "_$program"
    echo "${COMPREPLY[*]}" )
}
expect() {  # arguments: EXPECTED WORD...: fails unless `offers WORD...` prints EXPECTED
  local found
  found=$(offers "${@:2}")
  [[ $found == "$1" ]] || fail "bash offers '$found' for '${*:2}', expected '$1'"
}
expect '--tensorboard' train_lm --tensorb
expect 'adamw adamw-bf16 adamw-8bit adafactor' train_lm --optimizer ad
expect 'adamw adamw-bf16 adamw-8bit adafactor' train_lm --steps 3 --optimizer = ad
expect 'linear linear-to-zero' train_lm --schedule lin
expect '' train_lm --steps 1
expect 'report run' shale r
expect 'inspect' shale ckpt i
expect '--csv' shale metrics out --cs
touch "$work/some-file"
expect "$work/some-file" train_lm --data "$work/some-f"
expect "$work/some-file" shale report "$work/some-f"

# man formats each page without warnings.
if command -v man >/dev/null; then
  for program in train_lm train_image train_diffusion shale; do
    MANWIDTH=80 man --warnings -l "$work/$program.man" >"$work/page" 2>"$work/output" ||
      fail "man $program: exit code $?"
    [[ ! -s $work/output ]] || fail "man $program: warnings"
    grep -q 'EXIT STATUS' "$work/page" || fail "man $program: no exit codes"
  done
fi

finish "all passed; read by$checked"
