# awk -f unity.awk <source>...: fails, naming both places, when two sources of a folder define the
# same local name: in an unnamed namespace, as a file-level constant or static, or as a type.
# Overloads may share a name, and so may aliases of the same type. Relies on the layout of
# .clang-format: a declaration begins in the first column, its other lines do not.

# Returns the length of the bracketed text that s begins with.
function bracketed(s, open, close_,    i, c, depth) {
  for (i = 1; i <= length(s); ++i) {
    c = substr(s, i, 1)
    if (c == open) ++depth
    if (c == close_ && --depth == 0) return i
  }
  return length(s)
}

function count_of(s, what) { return gsub(what, "", s) }

# Returns the types of parameters, without their names and defaults.
function types(parameters,    i, c, depth, one, all, skips) {
  parameters = parameters ","
  for (i = 1; i <= length(parameters); ++i) {
    c = substr(parameters, i, 1)
    if (c ~ /[<({[]/) ++depth
    if (c ~ /[])}>]/) --depth
    if (c == "=" && depth == 0) skips = 1
    if (c != "," || depth > 0) {
      if (!skips) one = one c
      continue
    }
    gsub(/^ +| +$/, "", one)
    if (one !~ /^(const )?[A-Za-z0-9_:]+$/) sub(/[A-Za-z_][A-Za-z0-9_]*(\[\])?$/, "", one)
    gsub(/ /, "", one)
    all = all one ","
    one = ""
    skips = 0
  }
  return all
}

# `kind` says when a name may be defined twice: if the kinds are equal. It is the types of a
# function's parameters, an alias with its value, or "" for all others.
function define(name, kind, is_function,    key, i, other) {
  key = folder " " space " " name
  for (i = 1; i <= count[key]; ++i) {
    other = files[key, i]
    if (other == FILENAME) continue
    if (kinds[key, i] != kind && functions[key, i] && is_function) continue
    if (kinds[key, i] == kind && kind ~ /^=/) continue
    printf "%s:%d: %s is in %s:%d too\n", FILENAME, start, name, other, lines[key, i]
    failed = 1
    break
  }
  ++names
  ++count[key]
  files[key, count[key]] = FILENAME
  lines[key, count[key]] = start
  kinds[key, count[key]] = kind
  functions[key, count[key]] = is_function
}

# Defines the variables of `int a = 1, *b{2};`.
function define_variables(s,    i, c, depth, one, is_value, is_first) {
  is_first = 1
  s = s ";"
  for (i = 1; i <= length(s); ++i) {
    c = substr(s, i, 1)
    if (!is_value && depth == 0 && c ~ /[={[;,]/) {
      gsub(/^[ *&]+| +$/, "", one)
      if (is_first) sub(/^.*[ *&>]/, "", one)
      if (one ~ /^[A-Za-z_][A-Za-z0-9_]*$/) define(one, "")
      is_value = 1
      is_first = 0
    }
    if (c ~ /[({[]/ || !is_value && c == "<") ++depth
    if (c ~ /[])}]/ || !is_value && c == ">") --depth
    if (c == ";" && depth == 0) return
    if (is_value && depth == 0 && c == ",") {
      is_value = 0
      one = ""
      continue
    }
    if (!is_value) one = one c
  }
}

# s: a declaration up to its body or its end.
function declare(s,    before, name, rest, word, value) {
  if (s ~ /^template </) {
    rest = substr(s, 10)
    s = substr(rest, bracketed(rest, "<", ">") + 1)
    sub(/^ +/, "", s)
  }
  sub(/^\[\[[a-z_]+\]\] /, "", s)
  if (s ~ /^(using (namespace|enum) |using [A-Za-z_:0-9]+;|typedef|extern|static_assert|friend)/) return
  if (s ~ /^(using|namespace) [A-Za-z0-9_]+ =/) {
    split(s, word, " ")
    value = s
    sub(/^[^=]*/, "", value)
    gsub(/[ ;]/, "", value)
    define(word[2], value)
    return
  }
  if (s ~ /^(struct|class|union|enum)( class)? [A-Za-z0-9_]+( final)?( :.*)? ?\{/) {
    sub(/^(struct|class|union|enum)( class)? /, "", s)
    sub(/[^A-Za-z0-9_].*/, "", s)
    define(s, "")
    return
  }
  if (s ~ /^(struct|class|union|enum) [^({=]*;$/) return
  if (!hidden && s !~ /^(static|constexpr|const) /) return
  before = s
  sub(/\(.*/, "", before)
  if (before == s || before ~ /[={]/) {
    define_variables(s)
    return
  }
  name = before
  if (name ~ /operator/) return
  sub(/^.*[ *&>]/, "", name)
  if (name !~ /^[A-Za-z_][A-Za-z0-9_]*$/) return
  rest = substr(s, length(before) + 1)
  define(name, types(substr(rest, 2, bracketed(rest, "(", ")") - 2)), 1)
}

FNR == 1 {
  folder = FILENAME
  sub(/\/[^\/]*$/, "", folder)
  depth = hidden = 0
  space = text = raw = ""
}

raw != "" { if (index($0, raw)) raw = ""; next }
match($0, /R"[A-Za-z_]*\(/) {
  raw = ")" substr($0, RSTART + 2, RLENGTH - 3) "\""
  if (index(substr($0, RSTART), raw)) raw = ""
}

{ line = $0; gsub(/"([^"\\]|\\.)*"/, "\"\"", line); sub(/ *\/\/.*/, "", line); sub(/ +$/, "", line) }

text == "" && line ~ /^(inline )?namespace [A-Za-z0-9_:]* ?\{$/ {
  split(line, word, " ")
  ++depth
  before_space[depth] = space
  before_hidden[depth] = hidden
  if (word[2] == "{") hidden = 1
  else space = space "::" word[2]
  next
}
text == "" && /^}  \/\/ namespace/ && depth > 0 {
  space = before_space[depth]
  hidden = before_hidden[depth]
  --depth
  next
}
text == "" && line !~ /^[A-Za-z_[]/ { next }
line == "" || line ~ /^#/ { next }
{
  if (text == "") start = FNR
  sub(/^ +/, "", line)
  text = text (text == "" ? "" : " ") line
  if (count_of(text, "\\(") > count_of(text, "\\)")) next
  if (text !~ /[;{}]$/) next
  declare(text)
  text = ""
}

END {
  if (names == 0) {
    print "unity.awk: found no names, so nothing was checked"
    failed = 1
  }
  exit failed
}
