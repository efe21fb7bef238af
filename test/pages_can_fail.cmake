# cmake -DSCRATCH=<folder> -P pages_can_fail.cmake: shows on small trees that the check of tables
# finds errors, and accepts correct tables.

include(${CMAKE_CURRENT_LIST_DIR}/expect.cmake)

set(of_ranks "| `host_peak` | bytes |\n| `text` | none |\n`comm_share_all`, `comm_share_shard`, \
`comm_share_replica`, `comm_share_reshard`\n")
set(prometheus "| `shale_loss` | gauge |\n")
set(metrics "| `loss` | nats | x |\n| `state` | saved or not |\n${of_ranks}${prometheus}")

# check(<what> <expected> <page> <text>): writes a small tree whose code and pages agree, replaces
# docs/<page> by the text, and runs pages.cmake on the tree. Its output must match the regex
# <expected>; OK: pages.cmake must succeed.
function(check what expected page text)
  file(REMOVE_RECURSE ${SCRATCH})
  file(WRITE ${SCRATCH}/models/language/config.cpp "  spec.add(\n      \"data\", c.data);\n")
  file(WRITE ${SCRATCH}/models/training/run_config.cpp
       "  spec.add_choice(\"comm\", c.comm);\n  spec.section(\"comm\");\n")
  file(WRITE ${SCRATCH}/models/training/report/metrics.cpp "cat(\"{\\\"loss\\\": \", x)\n")
  file(WRITE ${SCRATCH}/models/training/report/run_status.cpp "  json[\"state\"] = x;\n")
  file(WRITE ${SCRATCH}/models/training/report/rank_report.cpp
       "{\"host_peak\", x};\nconst char k[] = \"comm_share_\";\n")
  file(WRITE ${SCRATCH}/models/training/report/samples_file.cpp "  json[\"state\"] = x;\n")
  file(WRITE ${SCRATCH}/models/training/report/starts_file.cpp "cat(\"{\\\"text\\\": \", x)\n")
  file(WRITE ${SCRATCH}/models/training/report/warnings_file.cpp "cat(\"{\\\"text\\\": \", x)\n")
  file(WRITE ${SCRATCH}/models/training/report/prometheus.cpp "gauge(\"shale_loss\", x);\n")
  file(WRITE ${SCRATCH}/base/option_synonyms.cpp "    {\"file text\", \"data\", \"\"},\n")
  file(WRITE ${SCRATCH}/base/log.cpp "std::getenv(\"NOCOLOR\");\nf(\"NO_COLOR\", \"[A;B]\");\n")
  file(WRITE ${SCRATCH}/docs/reference/flags.md "\n| `--data` | x |\n| `--comm X` | x |\n")
  file(WRITE ${SCRATCH}/docs/reference/files.md "| `NOCOLOR`, `NO_COLOR` |\n")
  file(WRITE ${SCRATCH}/docs/reference/metrics.md "${metrics}")
  file(WRITE ${SCRATCH}/docs/grafana.json "\"shale_loss{a}\", \"shale_rank_host_peak{a}\"\n")
  file(WRITE ${SCRATCH}/docs/${page} "${text}")
  expect("${what}" "${expected}" -DROOT=${SCRATCH} -P ${CMAKE_CURRENT_LIST_DIR}/pages.cmake)
  file(REMOVE_RECURSE ${SCRATCH})
endfunction()

check("tables that are as the code is" OK index.md "\n")
check("a flag that the page lacks" "reference/flags.md: no word of the flag --comm"
  reference/flags.md "\n| `--data` | x |\n| `--comm-x` | x |\n")
check("a flag that is not there" "reference/flags.md: --date is no flag"
  reference/flags.md "\n| `--data` | x |\n| `--comm` | x |\n| `--date` | x |\n")
check("a flag without its names elsewhere" "flags.md: no names of other programs for --data"
  reference/flags.md "\n| `--data` | x | y | | yes |\n| `--comm` | x |\n")
check("a variable that is read" "reference/files.md: no word of the variable NOCOLOR"
  reference/files.md "`NO_COLOR`\n")
check("a variable that is handed on" "reference/files.md: no word of the variable NO_COLOR"
  reference/files.md "`NOCOLOR`, NO_COLOR\n")
check("a column" "reference/metrics.md: no word of the column loss" reference/metrics.md "`loss_bits`, `state`\n${of_ranks}")
check("a key of status.json" "reference/metrics.md: no word of the key state" reference/metrics.md "`loss`, `status`\n${of_ranks}")
check("a figure of all ranks" "reference/metrics.md: no word of the column comm_share_replica"
  reference/metrics.md "`loss`, `state`, `host_peak`, `text`, `comm_share_all`, `comm_share_shard`, \
`comm_share_reshard`\n")
check("a column that is not there" "reference/metrics.md: no row has lose"
  reference/metrics.md "${metrics}| `lose` | nats | x |\n")
check("a column without a unit" "reference/metrics.md: loss has no unit"
  reference/metrics.md "| `loss` | | x |\n`state`\n${of_ranks}")
check("a metric of Prometheus" "reference/metrics.md: no word of the metric shale_loss"
  reference/metrics.md "| `loss` | nats | x |\n| `state` | saved or not |\n${of_ranks}")
check("a metric of Prometheus that is not there" "reference/metrics.md: no row has shale_lost"
  reference/metrics.md "${metrics}| `shale_lost` | gauge |\n")
check("a metric that the dashboard alone has" "grafana.json: there is no metric shale_lost"
  grafana.json "\"shale_loss{a}\", \"shale_lost{a}\"\n")
