# awk -f docs/curve.awk [-v title=TEXT] OUT/metrics.jsonl > curve.svg
# Draws the losses of a run, and its validation losses, over the steps. POSIX awk.

# The number behind `key` in a line of JSON; empty if there is none.
function number(key, rest) {
  if (!match($0, "\"" key "\": *")) return ""
  rest = substr($0, RSTART + RLENGTH)
  return match(rest, /^-?[0-9.]+([eE][-+]?[0-9]+)?/) ? substr(rest, 1, RLENGTH) : ""
}

function x_of(step) { return left + (step - first) / (last - first) * width }
function y_of(loss) { return top + (high - loss) / (high - low) * height }

# A step between marks so that there are some five of them: 1, 2 or 5 times a power of ten.
function spacing(range, unit) {
  unit = 1
  while (unit * 5 > range) unit /= 10
  while (unit * 50 <= range) unit *= 10
  if (range > unit * 25) return 5 * unit
  return range > unit * 10 ? 2 * unit : unit
}

function text(x, y, anchor, what) {
  printf "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">%s</text>\n", x, y, anchor, what
}

function line(x1, y1, x2, y2) {
  printf "<path d=\"M%.1f %.1fL%.1f %.1f\" class=\"grid\"/>\n", x1, y1, x2, y2
}

BEGIN {
  left = 56; top = 32; width = 600; height = 260
  if (title == "") title = "Loss, nats per token"
}

{
  step = number("step"); loss = number("loss"); val = number("val_loss")
  if (step == "" || (loss == "" && val == "")) next
  if (val != "") { vals++; val_step[vals] = step; val_loss[vals] = val }
  else { steps++; at[steps] = step; of[steps] = loss }
  value = (val != "" ? val : loss) + 0
  if (!seen++) { first = last = step + 0; low = high = value }
  if (step + 0 < first) first = step + 0
  if (step + 0 > last) last = step + 0
  if (value < low) low = value
  if (value > high) high = value
}

END {
  if (steps < 2) {
    print "curve.awk: found " steps + 0 " steps with a loss, want at least 2" > "/dev/stderr"
    exit 65
  }
  if (high == low) high = low + 1
  y_step = spacing(high - low); x_step = spacing(last - first)
  if (x_step < 1) x_step = 1
  low = y_step * int(low / y_step - (low < 0))
  if (y_step * int(high / y_step) < high) high = y_step * (int(high / y_step) + (high > 0))

  printf "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" " \
         "font-family=\"sans-serif\" font-size=\"12\" fill=\"#555\">\n",
    left + width + 24, top + height + 44
  print "<style>.grid{stroke:#ddd;fill:none}.loss{stroke:#36c;fill:none}.val{fill:#c33}</style>"
  print "<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>"
  text(left, 18, "start", title)
  for (y = low; y <= high + y_step / 2; y += y_step) {
    line(left, y_of(y), left + width, y_of(y))
    text(left - 8, y_of(y) + 4, "end", sprintf("%g", y))
  }
  for (x = x_step * int(first / x_step); x <= last; x += x_step) {
    if (x < first) continue
    line(x_of(x), top, x_of(x), top + height)
    text(x_of(x), top + height + 18, "middle", x)
  }
  text(left + width / 2, top + height + 36, "middle", "step")

  # More points than the picture is wide do not show: each drawn one is the mean of some.
  stride = int(steps / width) + 1
  printf "<path class=\"loss\" d=\""
  for (i = 1; i <= steps; i += stride) {
    sum = sum_x = count = 0
    for (j = i; j < i + stride && j <= steps; j++) { sum += of[j]; sum_x += at[j]; count++ }
    printf "%s%.1f %.1f", i == 1 ? "M" : "L", x_of(sum_x / count), y_of(sum / count)
  }
  print "\"/>"
  for (i = 1; i <= vals; i++) {
    printf "<circle class=\"val\" cx=\"%.1f\" cy=\"%.1f\" r=\"3.5\"/>\n",
      x_of(val_step[i]), y_of(val_loss[i])
  }
  text(left + width, 18, "end", vals ? "line: training, dots: validation" : "")
  print "</svg>"
}
