# Makes completions and manual pages from what `PROGRAM --help table` prints
# (base/config_internal.h):
#
#   awk -v kind=bash|zsh|fish|man -v program=train_lm -v version=0.2.0 -f option_files.awk TABLE
#
# For a manual page, docs/reference/files.md may follow the table. Its exit codes then become a
# section.

BEGIN { FS = "\t"; commands = 0 }

# ---- Reading the input ----

FILENAME != table && FNR == 1 && table != "" { in_codes = 0; reading_page = 1 }
FNR == 1 && table == "" { table = FILENAME }

reading_page {
  if (/^## /) in_codes = /^## Exit codes/
  if (in_codes && /^[|] [0-9]/) {
    split($0, cell, "|")
    gsub(/^ +| +$/, "", cell[2]); gsub(/^ +| +$/, "", cell[3])
    codes[++code_count] = cell[2]; meanings[code_count] = cell[3]
  }
  next
}

{
  command = $1
  if (!(command in known)) { known[command] = 1; order[++commands] = command }
  if ($2 == "summary") { summary[command] = $6; next }
  n = ++count[command]
  kinds[command, n] = $2; spelled[command, n] = $3; metavar[command, n] = $4
  offered[command, n] = $5; help[command, n] = $6; section[command, n] = $7
}

END {
  if (kind == "bash") bash()
  else if (kind == "zsh") zsh()
  else if (kind == "fish") fish()
  else if (kind == "man") man()
  else { print "option_files.awk: unknown kind " kind > "/dev/stderr"; exit 1 }
}

# ---- Completions for shells ----

# Quotes a text with single quotes for a POSIX shell.
function quoted(text) {
  gsub(/'/, "'\\''", text)
  return "'" text "'"
}

function is_tool(command, i) { return kinds[command, i] == "tool" }
function is_argument(command, i) { return kinds[command, i] == "argument" }

function bash(   c, i, command, name) {
  name = "_" program
  print "# Completion of " program " for bash, made of its options."
  print ""
  print "# What may stand behind a command: its tools, or its flags."
  print name "_words() {\n  case $1 in"
  for (c = 1; c <= commands; ++c) {
    command = order[c]
    printf "    %s) echo '", quoted(command)
    for (i = 1; i <= count[command]; ++i) {
      if (!is_argument(command, i)) printf "%s ", spelled[command, i]
    }
    print "' ;;"
  }
  print "  esac\n}\n"
  print "# What may stand behind a flag of it: words, FILE, or anything."
  print name "_values() {\n  case \"$1 $2\" in"
  for (c = 1; c <= commands; ++c) {
    command = order[c]
    for (i = 1; i <= count[command]; ++i) {
      if (kinds[command, i] != "value") continue
      printf "    %s) echo %s ;;\n", quoted(command " " spelled[command, i]),
             quoted(offered[command, i] == "" ? "ANY" : offered[command, i])
    }
  }
  print "  esac\n}\n"
  print name "() {"
  print "  local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD-1]}"
  print "  local command=" program " word values"
  print "  # --flag=value comes as three words."
  print "  if [[ $current == = ]]; then current=; elif [[ $previous == = ]]; then"
  print "    previous=${COMP_WORDS[COMP_CWORD-2]}"
  print "  fi"
  print "  for word in \"${COMP_WORDS[@]:1:COMP_CWORD-1}\"; do"
  print "    [[ -n $(" name "_words \"$command $word\") ]] || break"
  print "    command+=\" $word\""
  print "  done"
  print "  values=$(" name "_values \"$command\" \"$previous\")"
  print "  COMPREPLY=()"
  print "  case $values in"
  print "    ANY) return ;;"
  print "    '') if [[ $current == -* || $(" name "_words \"$command\") != -* ]]; then"
  print "          values=$(" name "_words \"$command\")"
  print "        else"
  print "          values=FILE"
  print "        fi ;;"
  print "  esac"
  print "  if [[ $values == FILE ]]; then"
  print "    compopt -o filenames 2>/dev/null"
  print "    mapfile -t COMPREPLY < <(compgen -f -- \"$current\")"
  print "  else"
  print "    mapfile -t COMPREPLY < <(compgen -W \"$values\" -- \"$current\")"
  print "  fi"
  print "}"
  print "complete -F " name " " program
}

# Returns an option's help on one line that is short enough for a menu.
function brief(text) {
  sub(/ \(.*\)$/, "", text)
  sub(/[;:] .*$/, "", text)
  return text
}

function fish(   c, i, command, words, n, w, where, value) {
  print "# Completion of " program " for fish, made of its options."
  for (c = 1; c <= commands; ++c) {
    command = order[c]
    n = split(command, words, " ")
    where = ""
    for (w = 2; w <= n; ++w) {
      where = where (where == "" ? "" : "; and ") "__fish_seen_subcommand_from " words[w]
    }
    for (i = 1; i <= count[command]; ++i) {
      if (is_argument(command, i)) continue
      if (is_tool(command, i)) {
        value = (where == "" ? "" : where "; and ")
        value = value "not __fish_seen_subcommand_from " tools_of(command)
        printf "complete -c %s -f -n %s -a %s -d %s\n", program, quoted(value),
               spelled[command, i], quoted(brief(help[command, i]))
        continue
      }
      value = " -x"
      if (kinds[command, i] == "flag") value = ""
      else if (offered[command, i] == "FILE") value = " -r -F"
      else if (offered[command, i] != "") value = " -x -a " quoted(offered[command, i])
      printf "complete -c %s%s -l %s%s -d %s\n", program, where == "" ? "" : " -n " quoted(where),
             substr(spelled[command, i], 3), value, quoted(brief(help[command, i]))
    }
  }
}

function tools_of(command,   i, text) {
  for (i = 1; i <= count[command]; ++i) {
    if (is_tool(command, i)) text = text (text == "" ? "" : " ") spelled[command, i]
  }
  return text
}

# Escapes brackets, colons and backslashes, which have a meaning in the specifications of zsh's
# _arguments.
function zsh_text(text) {
  gsub(/\\/, "\\\\", text); gsub(/\[/, "\\[", text); gsub(/\]/, "\\]", text); gsub(/:/, "\\:", text)
  return text
}

function zsh(   c, i, command, name, what) {
  name = "_" program
  print "#compdef " program
  print "# Completion of " program " for zsh, made of its options."
  print ""
  print "# Sets tools and specs to what may stand behind a command."
  print name "_of() {\n  tools=() specs=()\n  case $1 in"
  for (c = 1; c <= commands; ++c) {
    command = order[c]
    print "    " quoted(command) ")"
    for (i = 1; i <= count[command]; ++i) {
      if (is_tool(command, i)) {
        what = spelled[command, i] ":" zsh_text(brief(help[command, i]))
        printf "      tools+=(%s)\n", quoted(what)
      } else if (is_argument(command, i)) {
        printf "      specs+=(%s)\n", quoted("*:" spelled[command, i] ":_files")
      } else {
        what = spelled[command, i]
        if (kinds[command, i] == "value") what = what "="
        what = what "[" zsh_text(brief(help[command, i])) "]"
        if (kinds[command, i] == "value") {
          what = what ":" zsh_text(metavar[command, i]) ":"
          if (offered[command, i] == "FILE") what = what "_files"
          else if (offered[command, i] != "") what = what "(" offered[command, i] ")"
        }
        printf "      specs+=(%s)\n", quoted(what)
      }
    }
    print "      ;;"
  }
  print "  esac\n}\n"
  print name "() {"
  print "  local command=" program
  print "  local -a tools specs"
  print "  " name "_of $command"
  print "  while (( CURRENT > 2 && ${#tools} )) && (( ${tools[(I)${words[2]}:*]} )); do"
  print "    command+=\" ${words[2]}\""
  print "    words=(\"$command\" \"${(@)words[3,-1]}\")"
  print "    (( CURRENT-- ))"
  print "    " name "_of $command"
  print "  done"
  print "  if (( ${#tools} )); then _describe -t tools tool tools; return; fi"
  print "  _arguments -S $specs"
  print "}"
  print name " \"$@\""
}

# ---- Manual pages ----

function roff(text) {
  gsub(/\\/, "\\e", text)
  gsub(/-/, "\\-", text)
  sub(/^[.']/, "\\\\\\&&", text)
  return text
}

function man_options(command,   i, before) {
  before = ""
  for (i = 1; i <= count[command]; ++i) {
    if (is_tool(command, i)) continue
    if (section[command, i] != before) {
      before = section[command, i]
      print ".SS " roff(commands > 1 ? command ": " before : before)
    }
    print ".TP"
    printf "\\fB%s\\fR", roff(spelled[command, i])
    if (metavar[command, i] != "") printf " \\fI%s\\fR", roff(metavar[command, i])
    print "\n" roff(help[command, i])
  }
}

function man(   c, i, command) {
  command = order[1]
  print ".TH " toupper(program) " 1 \"\" \"Shale " version "\" \"User Commands\""
  print ".SH NAME\n" program " \\- " roff(summary[command])
  print ".SH SYNOPSIS"
  for (c = 1; c <= commands; ++c) {
    if (tools_of(order[c]) != "") continue
    printf ".B %s\n[\\fIFLAGS\\fR]", roff(order[c])
    for (i = 1; i <= count[order[c]]; ++i) {
      if (is_argument(order[c], i)) printf " \\fI%s\\fR", roff(spelled[order[c], i])
    }
    print (c < commands ? "\n.br" : "")
  }
  print ".SH DESCRIPTION"
  for (c = 1; c <= commands; ++c) {
    if (commands > 1) print ".TP\n.B " roff(order[c])
    print roff(summary[order[c]])
  }
  print ".SH OPTIONS\nA flag and its value may also be written \\fB\\-\\-flag=value\\fR."
  for (c = 1; c <= commands; ++c) man_options(order[c])
  if (code_count == 0) return
  print ".SH EXIT STATUS"
  for (i = 1; i <= code_count; ++i) print ".TP\n" codes[i] "\n" roff(meanings[i])
}
