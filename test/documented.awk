# awk -f documented.awk <header>...: fails, naming file and line, for each declaration in a
# namespace that has no comment: none above it, none behind it, and none above the group of lines to
# which it belongs (a group has no blank lines). Relies on the layout of .clang-format.

function problem(line, text) {
  printf "%s:%d: no comment says what this is: %s\n", FILENAME, line, text
  failed = 1
}

# Returns true if the line begins a declaration that must have a comment.
function declares(line) {
  if (line !~ /^[A-Za-z]/ || line ~ /^(namespace|public:|protected:|private:|friend)/) return 0
  if (line ~ /^(class|struct|enum class) [A-Za-z0-9_]+;/) return 0  # declared elsewhere
  if (line ~ /^using namespace/) return 0
  if (line ~ /^static_assert/) return 0
  return 1
}

# Returns true if the line has a trailing comment, or defines a member outside its class, which
# explains it.
function explains_itself(line) {
  return line ~ /\/\/ / || line ~ /^[^(=]*[A-Za-z0-9_>]::~?[A-Za-z_]+\(/ && line !~ /^(class|struct)/
}

# Notes that the declaration that begins at `line` has no comment yet. Its last line may have one.
function await_end(line, text) {
  unexplained = line
  unexplained_text = text
  look_for_end()
}
function look_for_end() {
  if (explains_itself($0)) {
    unexplained = 0
    group = 1
  } else if (/[;{}]$/) {
    problem(unexplained, unexplained_text)
    unexplained = 0
  }
}

FNR == 1 { group = of_template = unexplained = 0 }
/^$/ { group = of_template = unexplained = 0; next }
/^\/\// { group = 1; next }
/^#/ { next }
/^template <>/ { of_template = "explained"; next }  # explained where the template is
of_template && /^[A-Za-z]/ {                        # the declaration that follows a line `template`
  if (of_template == "unexplained") await_end(FNR, $0)
  of_template = 0
  next
}
unexplained { look_for_end(); next }
declares($0) {
  ++declarations
  explained = group || explains_itself($0)
  if (/^template/) {
    of_template = explained ? "explained" : "unexplained"
  } else if (explained) {
    group = 1
  } else {
    await_end(FNR, $0)
  }
}

END {
  if (declarations == 0) {
    print "documented.awk: found no declaration, so nothing was checked"
    failed = 1
  }
  exit failed
}
