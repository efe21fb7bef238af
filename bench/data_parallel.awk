# awk -f bench/data_parallel.awk ROWS.jsonl > data_parallel.svg
# Draws the rows of bench_data_parallel: for each model the MiB that rank 0 sends and receives in a
# step, and the MiB of its memory, over the number of ranks, with a line for each method. POSIX awk.

# Returns the value of `key` in a line of JSON, without quotes; empty if there is none.
function value(key, rest) {
  if (!match($0, "\"" key "\":\"?")) return ""
  rest = substr($0, RSTART + RLENGTH)
  match(rest, /^[^",}]*/)
  return substr(rest, 1, RLENGTH)
}

function text(x, y, anchor, what) {
  printf "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">%s</text>\n", x, y, anchor, what
}

function line(x1, y1, x2, y2, style) {
  printf "<path d=\"M%.1f %.1fL%.1f %.1f\" %s/>\n", x1, y1, x2, y2, style
}

# Returns the smallest number of the form 1, 2 or 5 times a power of ten that is at least `most`.
function round_up(most, unit) {
  unit = 1
  while (unit < most) unit *= 10
  while (unit / 10 >= most) unit /= 10
  if (unit / 5 >= most) return unit / 5
  if (unit / 2 >= most) return unit / 2
  return unit
}

# Draws a figure for one model; its upper left corner is at (x0, y0).
function panel(model, figure, title, x0, y0, most, i, w, high, y, x, before_x, before_y, key) {
  most = 0
  for (i = 1; i <= rank_counts; i++) for (w = 1; w <= ways; w++) {
    key = model SUBSEP figure SUBSEP way[w] SUBSEP ranks[i]
    if (key in of && of[key] > most) most = of[key]
  }
  high = round_up(most)
  text(x0, y0 - 8, "start", title)
  for (i = 0; i <= 4; i++) {
    y = y0 + height * (1 - i / 4)
    line(x0, y, x0 + width, y, "class=\"grid\"")
    text(x0 - 6, y + 4, "end", sprintf("%g", high * i / 4))
  }
  for (i = 1; i <= rank_counts; i++) {
    text(x0 + width * (i - 0.5) / rank_counts, y0 + height + 16, "middle", ranks[i])
  }
  for (w = 1; w <= ways; w++) {
    before_x = ""
    for (i = 1; i <= rank_counts; i++) {
      key = model SUBSEP figure SUBSEP way[w] SUBSEP ranks[i]
      if (!(key in of)) continue
      x = x0 + width * (i - 0.5) / rank_counts
      y = y0 + height * (1 - of[key] / high)
      printf "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3\" fill=\"%s\"/>\n", x, y, colour[w]
      if (before_x != "") line(before_x, before_y, x, y, "stroke=\"" colour[w] "\" fill=\"none\"")
      before_x = x; before_y = y
    }
  }
}

BEGIN {
  width = 220; height = 130
  split("#c33 #36c #393 #c93 #639", colour, " ")
}

value("kind") == "data_parallel" {
  m = value("model"); w = value("way"); n = value("ranks")
  if (!(m in seen_model)) { seen_model[m] = 1; model[++models] = m }
  if (!(w in seen_way)) { seen_way[w] = 1; way[++ways] = w }
  if (!(n in seen_ranks)) { seen_ranks[n] = 1; ranks[++rank_counts] = n }
  of[m, "bytes", w, n] = value("first_sent_mib") + value("first_received_mib")
  of[m, "memory", w, n] = value("first_memory_mib") + 0
}

END {
  if (models == 0) {
    print "data_parallel.awk: found no row of bench_data_parallel" > "/dev/stderr"
    exit 65
  }
  printf "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" " \
         "font-family=\"sans-serif\" font-size=\"11\" fill=\"#555\">\n",
    2 * (width + 64) + 16, models * (height + 56) + 40
  print "<style>.grid{stroke:#ddd;fill:none}</style>"
  print "<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>"
  for (w = 1; w <= ways; w++) {
    printf "<circle cx=\"%d\" cy=\"14\" r=\"4\" fill=\"%s\"/>\n", 56 + 90 * (w - 1), colour[w]
    text(66 + 90 * (w - 1), 18, "start", way[w])
  }
  for (i = 1; i <= models; i++) {
    y = 52 + (i - 1) * (height + 56)
    panel(model[i], "bytes", model[i] ": MiB over links of rank 0, by ranks", 48, y)
    panel(model[i], "memory", model[i] ": MiB of rank 0's memory, by ranks", width + 112, y)
  }
  print "</svg>"
}
