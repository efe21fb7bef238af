#!/usr/bin/env bash
# Tests the site generated from the pages. Every link leads to an existing file and anchor, and
# nothing is loaded from other hosts. In a browser, search works from file://, at every width,
# without errors.
source "$(dirname "${BASH_SOURCE[0]}")/../support/cli.sh"

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
pandoc=$(command -v pandoc)
if [[ -z $pandoc ]]; then
  echo 'skipped: no pandoc is installed'
  exit 4
fi
shown=("$work/output")
site=$work/site
build() { cmake -DROOT="$root" -DOUT="$1" -DPANDOC="$pandoc" -P "$root/docs/site/build.cmake"; }
build "$site" >"$work/output" 2>&1 || { fail "build: exit code $?"; finish; }
mkdir "$work/other" && touch "$work/other/mine"
build "$work/other" >"$work/output" 2>&1 && fail 'a folder that is no site was replaced'
[[ -e $work/other/mine ]] || fail 'a folder that is no site was removed'

# dead_links: prints one line for each broken link, and for each resource that a page loads from
# another host.
dead_links() {
  (cd "$site" && find . -name '*.html' | sed 's|^\./||' | sort | xargs awk '
    FNR == 1 { folder = FILENAME; sub(/[^\/]*$/, "", folder); known[FILENAME] = 1 }
    {
      line = $0
      while (match(line, /(^|[ <])(id|href|src)="[^"]*"/)) {
        found = substr(line, RSTART + 1, RLENGTH - 2)
        if (RSTART == 1 && found !~ /^(id|href|src)=/) found = substr(line, 1, RLENGTH - 1)
        line = substr(line, RSTART + RLENGTH)
        name = found; sub(/=.*/, "", name)
        value = found; sub(/^[a-z]+="/, "", value); sub(/"$/, "", value)
        if (name == "id") ids[FILENAME "#" value] = 1
        else if (value ~ /^[a-z]+:/) {
          if (name == "src" || $0 ~ /<link/) print FILENAME ": loads " value
        } else links[FILENAME "\t" folder "\t" value] = 1
      }
    }
    END {
      for (link in links) {
        split(link, part, "\t")
        target = part[3]; anchor = ""
        if (match(target, /#.*/)) {
          anchor = substr(target, RSTART)
          target = substr(target, 1, RSTART - 1)
        }
        path = target == "" ? part[1] : part[2] target
        while (sub(/[^\/]+\/\.\.\//, "", path)) continue
        ++seen
        if (path in known) {
          if (anchor != "" && !((path anchor) in ids)) print part[1] ": no " path anchor
        } else if (path ~ /(^|\/)\.\.\// || (getline text < path) < 0) {
          print part[1] ": no " path
        } else close(path)
      }
      if (seen < 1000) print "only " seen + 0 " links were looked at"
    }')
}
dead_links >"$work/output"
[[ -s $work/output ]] && fail 'links that lead nowhere'
cp "$site/docs/contributing/style.html" "$work/style.html"
echo '<a href="gone.html">x</a><a href="bounds.html#gone">x</a><img src="https://a.org/x.png">' \
  >>"$site/docs/contributing/style.html"
dead_links >"$work/output"
for what in 'no docs/contributing/gone.html' 'no docs/contributing/bounds.html#gone' 'loads https://a.org/x.png'; do
  grep -qxF "docs/contributing/style.html: $what" "$work/output" || fail "not found by this test: $what"
done
cp "$work/style.html" "$site/docs/contributing/style.html"

# finds QUERY PAGE [HEADING]: the page is the first that a search finds.
finds() {
  node "$root/test/support/search_pages.js" "$site" "$1" >"$work/output" 2>&1 || fail "search for $1"
  head -n 1 "$work/output" | grep -qF -- "$2" || fail "a search for '$1' does not find $2 first"
}
if command -v node >/dev/null; then
  finds 'fine-tune' 'docs/howto/finetuning.html'
  finds 'finetuning' 'docs/howto/finetuning.html'
  finds 'nan' 'docs/howto/nan_and_slow.html'
  finds 'out of memory' 'docs/howto/out_of_memory.html'
  finds 'learning rate' 'docs/howto/resume.html Change the learning rate'
  finds 'how to install' 'index.html Install'
  node "$root/test/support/search_pages.js" "$site" 'zzyzx' >"$work/output"
  [[ ! -s $work/output ]] || fail 'a search for nothing finds something'
else
  echo 'skipped: no node is installed, so the order of what searches find was not checked'
fi

# The reference of the C++ interface must have every class, function, member and operator of public
# headers, and a search must find them.
api=$site/docs/reference/api
for name in 'cross_entropy' 'Tensor::requires_grad' 'operator+' 'DataParallelOptions::stage' 'run'; do
  grep -qF "<code>$name</code>" "$api/index.html" || fail "the reference does not have $name"
done
grep -hoE '^#include "shale/[a-z_/0-9]+[.]h"' "$root"/include/shale/*.h | sed 's/.*"shale.//; s/"//' |
  sort -u | (cd "$root" && xargs grep -hoE '^(class|struct|enum class) [A-Za-z0-9]+ [^;]*\{$') |
  sed -E 's/^(class|struct|enum class) ([A-Za-z0-9]+) .*/\2/' | sort -u >"$work/types"
[[ $(wc -l <"$work/types") -gt 100 ]] || fail 'fewer than 100 types were looked for'
while read -r name; do
  grep -qF "<code>$name</code>" "$api/index.html" || fail "the reference does not have $name"
done <"$work/types"
grep -q '^ private:' "$api"/*.html && fail 'the reference shows private members'

# The landing page must link to each kind of page, and every page to its neighbours.
grep -q '<li><a href="docs/tutorials/first_model.html"><b>' "$site/index.html" || fail 'no doors'
grep -q 'rel="next" href="../../docs/tutorials/first_hour.html"' "$site/docs/tutorials/first_model.html" &&
  grep -q 'rel="prev" href="../../docs/tutorials/first_model.html"' "$site/docs/tutorials/first_hour.html" ||
  fail 'pages do not lead to their neighbours'

browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome)
if [[ -z $browser ]]; then
  echo 'skipped: no chromium or google-chrome is installed, so nobody searched'
  finish
fi
look() {  # arguments: PAGE FLAG...: the document after its scripts have run
  local page=$1
  shift
  timeout -k 5 120 "$browser" --headless --no-sandbox --disable-gpu --user-data-dir="$work/profile" \
    --enable-logging=stderr --dump-dom --virtual-time-budget=20000 "$@" "file://$page" \
    2>"$work/browser.log" >"$work/dom" || fail "$page: exit code $?"
  grep CONSOLE "$work/browser.log" >"$work/output" && fail "$page: the browser complains"
}
look "$site/docs/reference/metrics.html?q=offload+ratio"
sed -n '/id="found"/,/id="count"/p' "$work/dom" >"$work/output"
grep -q 'href="../../docs/reference/flags.html#offload-to-host-memory"' "$work/output" ||
  fail 'a search does not find the section about its words'
look "$site/index.html?q=nothing-has-this-word"
grep -q '>0 sections<' "$work/dom" || fail 'a search for nothing finds something'
cp "$root/test/fixtures/measure_page.html" "$site/measure.html"
pages='page=index.html&page=docs/reference/flags.html&page=models/plan/plan_rank.h.html'
look "$site/measure.html?$pages" --allow-file-access-from-files
sed -n '/id="result"/,/<\/p>/p' "$work/dom" >"$work/output"
grep -q '<p id="result">nothing wrong</p>' "$work/dom" || fail 'layout'
finish
