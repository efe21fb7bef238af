# awk -v names=<file> -f api.awk <header>...: prints the declarations of headers and their comments
# as HTML, without private members and bodies of functions. Writes each public name and its anchor
# to <file>. Relies on the layout of .clang-format.

function escaped(text) {
  gsub(/&/, "\\&amp;", text)
  gsub(/</, "\\&lt;", text)
  gsub(/>/, "\\&gt;", text)
  return text
}
function end_block() {
  if (block != "" && declares) printf "<pre%s><code>%s</code></pre>\n", anchors, block
  block = anchors = ""
  declares = 0
}
function add(line) { block = block escaped(line) "\n" }

# Stores a name; the first name of a block becomes the block's anchor.
function note(name) {
  declares = 1
  if (name == "" || name in seen) return
  seen[name] = 1
  if (anchors == "") {
    anchor = name
    gsub(/[^A-Za-z0-9_]+/, "-", anchor)
    if (anchor == "-" || anchor in used) anchor = "n" (++count)
    used[anchor] = 1
    anchors = " id=\"" anchor "\""
  }
  print anchor "\t" name > names
}

# Returns the name of the function, type or value that a line declares.
function name_in(line) {
  sub(/^ *(template <[^>]*> *)?/, "", line)
  if (match(line, /^(class|struct|enum class|enum) +[A-Za-z_0-9]+/)) {
    line = substr(line, RSTART, RLENGTH)
    sub(/.* /, "", line)
    return line
  }
  if (line ~ /^using [A-Za-z_0-9]+ =/) { sub(/^using /, "", line); sub(/ .*/, "", line); return line }
  if (match(line, /operator[^A-Za-z_0-9 (]+\(|[~A-Za-z_0-9]+\(/)) return substr(line, RSTART, RLENGTH - 1)
  if (match(line, /[A-Za-z_0-9]+( =.*|\{.*)?;/)) {
    line = substr(line, RSTART, RLENGTH)
    sub(/[ ={;].*/, "", line)
    return line
  }
  return ""
}

FNR == 1 {
  end_block()
  type = ""
  skips = hidden = continues = 0
  path = FILENAME
  sub(root, "", path)
  printf "<h2 id=\"%s\">%s</h2>\n", path, path
}
/^#/ || /^(inline )?namespace / || /^}  \/\/ namespace/ { next }
skips { if (/^}/) skips = 0; next }  # the body of a function
type != "" && /^};?/ { add($0); type = ""; hidden = 0; next }
type != "" {
  if (/^ (public|protected|private):/) hidden = !/public/
  if (hidden) next
  add($0)
  if (/^  [A-Za-z~]/ && !continues) note(type "::" name_in($0))
  continues = /^  /  && !/[;{}]( *\/\/.*)?$/ && !/^ *\/\//
  next
}
/^$/ { end_block(); next }
/^\/\// { add($0); next }
{
  if (/^(class|struct|enum)/ && /\{$/) {
    note(name_in($0))
    type = name_in($0)
    add($0)
    continues = 0
    next
  }
  if (/^[A-Za-z]/ && !/^template/ && !/^}/) note(name_in($0))
  line = $0
  if (/\{$/) { skips = 1; sub(/ *\{$/, ";", line) }
  add(line)
}
END { end_block() }
