# awk -f documented.awk <header>...: fails, naming file and line, for a declaration in a namespace
# that says nothing of itself: no comment above it or behind it, and none for the group of lines that
# it stands in without a blank one. Goes by the layout that .clang-format gives.

function problem(line, text) {
  printf "%s:%d: no comment says what this is: %s\n", FILENAME, line, text
  failed = 1
}

# Returns true if the line begins a declaration that must have a comment.
function declares(line) {
  if (line !~ /^[A-Za-z]/ || line ~ /^(namespace|public:|protected:|private:|friend)/) return 0
  if (line ~ /^(class|struct|enum class) [A-Za-z0-9_]+;/) return 0  # is declared elsewhere
  if (line ~ /^using namespace/) return 0
  if (line ~ /^static_assert/) return 0
  return 1
}

# By a comment behind it, or as a member that is defined outside its class, where it is explained.
function explains_itself(line) {
  return line ~ /\/\/ / || line ~ /^[^(=]*[A-Za-z0-9_>]::~?[A-Za-z_]+\(/ && line !~ /^(class|struct)/
}

# What line `line` begins is unexplained so far; its last line may have the comment.
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
/^template <>/ { of_template = "explained"; next }  # elsewhere
of_template && /^[A-Za-z]/ {                        # what a line `template` began
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
