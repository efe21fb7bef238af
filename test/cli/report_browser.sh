#!/usr/bin/env bash
# Opens the page of shale report and of shale watch --web in a real browser, in light and dark mode.
# Checks that the charts and their values are right, that the first screen shows all charts, that
# nothing is wider than the page at any width, that no texts overlap, and that the browser logs no
# errors. Also takes screenshots at two widths and prints the page.
source "$(dirname "${BASH_SOURCE[0]}")/../support/cli.sh"

browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome)
if [[ -z $browser ]]; then
  echo 'skipped: no chromium or google-chrome is installed'
  exit 4
fi

# Creates two longer runs with everything a report can show, with long names and very different
# magnitudes.
run() {  # arguments: FOLDER RATE STEPS
  mkdir "$work/$1"
  awk -v rate="$2" -v steps="$3" 'BEGIN {
    for (step = 1; step <= steps; ++step) {
      printf "{\"step\": %d, \"loss\": %.6f, \"loss_bits\": \"40%06x\", \"grad_norm\": %.3f, " \
             "\"lr\": %g, \"tokens\": %d, \"tokens_per_s\": %.1f, \"step_ms\": %.3f, " \
             "\"comm_exposed_ms\": %.3f, \"mfu\": 0.4%d, \"device_peak_bytes\": 6200000000, " \
             "\"host_peak_bytes\": %d, \"loss_scale\": 65536, \"skipped_steps\": %d}\n", step,
             2.2 + 8 / (1 + rate * step), 65536 * step % 8388607, 1 + 100 / step, 0.0003 * rate,
             8192 * step, 123456.7 + step % 17, 812 + step % 9, step % 13, step % 10,
             1100000000 + 1000 * step, step / 300
      if (step % 200 == 0) {
        printf "{\"step\": %d, \"val_loss\": 2.5, \"val_tokens\": 65536, \"val_ms\": 2100}\n", step
        printf "{\"step\": %d, \"ranks\": 1024, \"device_busy_share_min\": 0.8123, " \
               "\"device_busy_share_min_rank\": 512, \"device_busy_share_median\": 0.87, " \
               "\"device_busy_share_max\": 0.9, \"device_busy_share_max_rank\": 3, " \
               "\"device_watts_median\": 612.5, \"device_celsius_max\": 61}\n", step
      }
    }
  }' >"$work/$1/metrics.jsonl"
  printf '{"state": "failed", "step": 1200, "checkpoint_step": 1200, "checkpoint": "x", %s' \
    '"exit_code": 76, "message": "rank 7 of 1024 on node-0123456789.cluster.example.org is lost"}' \
    >"$work/$1/status.json"
  printf '{"data": "/data/%s", "out": "%s", "lr": %s, "steps": 1200}' \
    a_very_long_path_of_a_file_that_has_no_blank_in_it_anywhere_at_all_and_goes_on "$1" "$2" \
    >"$work/$1/config.json"
  printf '{"time": "2026-11-23T00:24:55.123Z", "host": "h", "rank": 1023, "level": "error", %s\n' \
    '"text": "link_that_has_no_blank_0123456789012345678901234567890123456789 waited for 600 s"}' \
    >"$work/$1/warnings.jsonl"
  printf '{"step": 0, "ranks": 1024, "time": "T", "device": "cuda 9.0", "parameters": %s}\n' \
    70553706496 >"$work/$1/starts.jsonl"
  printf '{"step": 1200, "tag": "samples/end", "text": "Once <upon> a time\\n%s"}\n' \
    "$(printf 'x%.0s' {1..300})" >"$work/$1/samples.jsonl"
}
run a-run-with-a-name-of-some-length 1 1200
run another_run_whose_name_is_long_too 2 900

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cd "$work" || exit 1
"$BIN_DIR/shale" report a-run-with-a-name-of-some-length another_run_whose_name_is_long_too \
  -o report.html >output 2>&1 || fail "report: exit code $?"
cp "$here/../fixtures/measure_page.html" measure.html

look() {  # arguments: PAGE SCHEME FLAG...
  local page=$1 scheme=$2
  shift 2
  timeout -k 5 120 "$browser" --headless --no-sandbox --disable-gpu --allow-file-access-from-files \
    --user-data-dir="$work/profile" --enable-logging=stderr \
    --blink-settings=preferredColorScheme="$scheme" "$@" "file://$work/$page" 2>browser.log
}
for scheme in 0 1; do  # dark, light
  look measure.html "$scheme" --dump-dom --virtual-time-budget=20000 >dom || fail "no page: code $?"
  sed -n '/id="result"/,/<\/p>/p' dom >output
  grep -q '<p id="result">nothing wrong</p>' dom || fail "layout, scheme $scheme"
  grep CONSOLE browser.log >output && fail "console, scheme $scheme"
done

# probe PAGE FLAG...: opens the page and prints, one per line: the titles of its charts; what the
# first chart shows at its right end, by pointer and by key; where the last chart ends.
probe() {
  local page=$1
  shift
  sed 's|</body>|<script src="probe.js"></script></body>|
       s|script-src|script-src file:|' "$page" >probed.html
  look probed.html 1 --dump-dom --virtual-time-budget=5000 --window-size=1280,800 "$@" >dom
  grep CONSOLE browser.log >output && fail "console of $page"
  sed -n '/id="probe"/,/<\/pre>/p' dom | sed 's/<[^>]*>//g; s/&lt;/</g; s/&gt;/>/g'
}
cat >probe.js <<'SCRIPT'
const first = document.querySelector('#charts svg:not(.key)'), lines = [];
const tip = document.getElementById('tip');
const words = () => [...tip.children].map((line) => line.textContent).join('; ');
lines.push([...document.querySelectorAll('#charts b')].map((node) => node.textContent).join('|'));
if (first) {
  const box = first.getBoundingClientRect(), at = {clientX: box.right, clientY: box.top + 9};
  first.dispatchEvent(new PointerEvent('pointermove', at));
  lines.push(words());
  first.dispatchEvent(new PointerEvent('pointerleave'));
  lines.push(tip.hidden);
  first.dispatchEvent(new KeyboardEvent('keydown', {key: 'ArrowLeft'}));
  lines.push(words());
}
const ends = [...document.querySelectorAll('figure')].map((f) => f.getBoundingClientRect().bottom);
lines.push(Math.max(0, ...ends) <= 800 ? 'one screen' : `charts end at ${Math.max(...ends)}`);
for (const row of document.querySelectorAll('#runs tr, #runs p')) {
  const cells = [...row.children].map((cell) => cell.textContent);
  lines.push(cells.join('|') || row.textContent);
}
document.body.append(Object.assign(document.createElement('pre'),
                                   {id: 'probe', textContent: lines.join('\n')}));
SCRIPT
expect() {  # WORDS: the output has them
  grep -qF -- "$1" output || fail "the page does not say: $1"
}
probe report.html >output
expect 'Loss|Validation loss|Throughput|MFU|Step time|Memory, rank 0|Gradient norm|Learning rate|'
expect 'Skipped steps|Device busy, all ranks|Device power, W, all ranks'
expect 'step 1200, in nats per token; a-run-with-a-name-of-some-length training 2.2067'
expect 'another_run_whose_name_is_long_too training 2.2044; '
expect 'a-run-with-a-name-of-some-length validation 2.5'
expect 'one screen'
expect '|failed, exit code 76|1200 of 1200|'
expect 'a-run-with-a-name-of-some-length: rank 7 of 1024 on node-0123456789.cluster'
expect '|5.774 GiB|87 %, 612.5 W, 61 C|70.55G|1024, cuda 9.0|16m 19s|'

# One run that lacks everything that only some runs have.
mkdir short && head -n 40 a-run-with-a-name-of-some-length/metrics.jsonl >short/metrics.jsonl
"$BIN_DIR/shale" report short -o short.html >/dev/null || fail "report: exit code $?"
probe short.html >output
expect 'step 40, in nats per token; training 2.3951'
expect 'step 39, in nats per token; training 2.4'
expect 'true'

# A run of one rank shows its GPU, but no spread over ranks.
mkdir gpu && cp short/metrics.jsonl gpu/
printf '{"step": 40, "ranks": 1, "device_busy_share_median": 0.93, "host_peak_bytes_median": 9, %s}\n' \
  '"device_watts_median": 612.5, "device_celsius_median": 61, "device_celsius_max": 61' \
  >>gpu/metrics.jsonl
"$BIN_DIR/shale" report gpu -o gpu.html >/dev/null || fail "report: exit code $?"
probe gpu.html >output
expect '|Device busy|Device temperature, C|Device power, W'
expect '|93 %, 612.5 W, 61 C|'
grep -q 'Host memory' output && fail 'a chart of all ranks of one'

# Runs without a step, with one step, with losses that are not finite, and with texts that are HTML.
mkdir empty one nan && : >empty/metrics.jsonl
head -n 1 short/metrics.jsonl >one/metrics.jsonl
cp one/metrics.jsonl nan/metrics.jsonl
printf '{"step": 2, "loss": null, "loss_bits": "7fc00000", "lr": 1e-3}\n{"step": 3, "lo' \
  >>nan/metrics.jsonl
hostile='</script><img src=x onerror=document.title=1>é漢'
cp -r short "$work/h" && mkdir "$work/h/checkpoints"
printf '{"step": 3, "tag": "samples/end", "text": "</script><b id=broken>"}\n' >h/samples.jsonl
printf '{"data": "<b id=broken>"}' >h/config.json
mkdir "$work/h2" && mv h "h2/${hostile//\//:}"
for name in empty one nan "h2/${hostile//\//:}"; do
  "$BIN_DIR/shale" report "$name" -o odd.html >output 2>&1 || fail "report of $name: exit code $?"
  probe odd.html >odd.txt
  cp odd.txt output
  case $name in
    empty) expect '|not known|0' ;;
    one) expect 'step 1, in nats per token; training 6.2' ;;
    nan) expect '|nan|' ;;
    *) expect "$name"
      grep -q '<b id="broken"\|<img' dom && fail 'texts of a run became elements' ;;
  esac
done

# The live page shows new rows at once, and says so if the server does not answer.
mkdir live && cp short/metrics.jsonl live/
"$BIN_DIR/shale" watch live --web --every 0.2 >web.log 2>&1 &
server=$!
for ((i = 0; i < 100; ++i)); do grep -q open web.log && break; sleep 0.1; done
url=$(grep -o 'http://[^ ]*' web.log)
live() {
  timeout -k 5 120 "$browser" --headless --no-sandbox --disable-gpu \
    --user-data-dir="$work/profile" --enable-logging=stderr --virtual-time-budget=3000 \
    --dump-dom "$url" 2>browser.log >output
}
live
expect '>Loss</b>'
expect 'live, at'
printf '{"step": 41, "loss": 1.25, "loss_bits": "3fa00000", "lr": 1e-3}\n' >>live/metrics.jsonl
sleep 1
live
expect '>1.25</td>'
grep CONSOLE browser.log >output && fail 'console of the live page'
kill -TERM $server && wait $server || fail "shale watch --web: exit code $? after SIGTERM"

# Screenshots: the page fills the screenshot, and dark mode looks different.
png_size() {  # arguments: FILE: "WIDTHxHEIGHT"; empty if it is no PNG file
  [[ $(head -c 4 "$1" | tail -c 3) == PNG ]] || return
  od -An -tu1 -j16 -N8 "$1" | awk '{ print $3 * 256 + $4 "x" $7 * 256 + $8 }'
}
for size in 1280,1600 390,1600; do
  for scheme in 0 1; do
    look report.html "$scheme" --window-size=$size --hide-scrollbars \
      --screenshot="$work/$scheme.png" >output || fail "no picture: code $?"
    [[ $(png_size "$scheme.png") == "${size/,/x}" ]] ||
      fail "the picture is of $(png_size "$scheme.png"), expected ${size/,/x}"
    # A screenshot of a page in a single colour is only a few kB.
    [[ $(stat -c %s "$scheme.png") -gt 20000 ]] || fail "the picture of $size shows hardly a thing"
  done
  cmp -s 0.png 1.png && fail "dark is as light, at $size"
done
look report.html 1 --print-to-pdf="$work/report.pdf" >output || fail "not printed: code $?"
[[ $(head -c 4 report.pdf) == %PDF && $(stat -c %s report.pdf) -gt 20000 ]] || fail 'no PDF file'

# Verifies that the checks can fail.
wide="<p style=\"white-space: nowrap\">$(printf 'wide %.0s' {1..400})</p>"
sed -i "s|<main>|<main>$wide|; s|</body>|<script>nothing()</script></body>|" report.html
look measure.html 1 --dump-dom --virtual-time-budget=20000 >dom
grep -q 'leaves the page\|overflows' dom || fail 'a page that is too wide is not found'
grep -q CONSOLE browser.log || fail 'a script that fails is not found'

finish
