#!/usr/bin/env bash
# Opens a report in a real browser, in light and dark mode: nothing is wider than the page at any
# width, no texts overlap, and the browser logs no errors. Also takes screenshots at two widths and
# prints the page.
source "$(dirname "${BASH_SOURCE[0]}")/../support/cli.sh"

browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome)
if [[ -z $browser ]]; then
  echo 'skipped: no chromium or google-chrome is installed'
  exit 4
fi

# Creates two longer runs with everything a report can show, with long names and very different
# magnitudes.
run() {  # arguments: FOLDER RATE
  mkdir "$work/$1"
  awk -v rate="$2" 'BEGIN {
    for (step = 1; step <= 1200; ++step) {
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
               "\"device_busy_share_max\": 0.9, \"device_busy_share_max_rank\": 3}\n", step
      }
    }
  }' >"$work/$1/metrics.jsonl"
  printf '{"state": "failed", "step": 1200, "checkpoint_step": 1200, "checkpoint": "x", %s' \
    '"exit_code": 76, "message": "rank 7 of 1024 on node-0123456789.cluster.example.org is lost"}' \
    >"$work/$1/status.json"
  printf '{"data": "/data/%s", "out": "%s", "lr": %s}' \
    a_very_long_path_of_a_file_that_has_no_blank_in_it_anywhere_at_all_and_goes_on "$1" "$2" \
    >"$work/$1/config.json"
  printf '{"time": "2026-11-23T00:24:55.123Z", "host": "h", "rank": 1023, "level": "error", %s\n' \
    '"text": "link_that_has_no_blank_0123456789012345678901234567890123456789 waited for 600 s"}' \
    >"$work/$1/warnings.jsonl"
  printf '{"step": 1200, "tag": "samples/end", "text": "Once <upon> a time\\n%s"}\n' \
    "$(printf 'x%.0s' {1..300})" >"$work/$1/samples.jsonl"
}
run a-run-with-a-name-of-some-length 1
run another_run_whose_name_is_long_too 2

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
