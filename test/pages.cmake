# cmake -DROOT=<tree> -P pages.cmake: compares the tables of docs/ with the code. Fails, naming page
# and name, when
#  - docs/reference/flags.md lacks a flag of a training program or of a tool, or has an unknown one;
#  - docs/reference/flags.md does not say what others call a flag in base/option_synonyms.cpp;
#  - docs/reference/files.md lacks a variable that a program or a test reads;
#  - docs/reference/metrics.md lacks a column of metrics.jsonl, a key of status.json or a Prometheus
#    metric, or docs/grafana.json uses an unknown one.

cmake_minimum_required(VERSION 3.25)
include(${CMAKE_CURRENT_LIST_DIR}/report_problems.cmake)
set(problems)
set(names_seen 0)

# names_in(<regex> <group> <out> <file>...): the texts matched by a group of the regex in these
# files.
function(names_in regex group out)
  set(names)
  foreach(file IN LISTS ARGN)
    file(READ ${file} text)
    string(REPLACE ";" " " text "${text}")
    string(REGEX MATCHALL "${regex}" found "${text}")
    foreach(match IN LISTS found)
      string(REGEX REPLACE "${regex}" "\\${group}" name "${match}")
      list(APPEND names "${name}")
    endforeach()
  endforeach()
  list(REMOVE_DUPLICATES names)
  set(${out} "${names}" PARENT_SCOPE)
endfunction()

# expect_in(<page> <what> <name>...): requires each name on the page, as code.
function(expect_in page what)
  file(READ ${ROOT}/docs/${page} text)
  foreach(name IN LISTS ARGN)
    if(NOT text MATCHES "`${name}[^A-Za-z0-9_-]")
      list(APPEND problems "docs/${page}: no word of ${what} ${name}")
    endif()
  endforeach()
  list(LENGTH ARGN count)
  math(EXPR names_seen "${names_seen} + ${count}")
  set(names_seen ${names_seen} PARENT_SCOPE)
  set(problems ${problems} PARENT_SCOPE)
endfunction()

# ---- Flags ----

file(GLOB sources ${ROOT}/models/diffusion/config.cpp ${ROOT}/models/image/*config.cpp
     ${ROOT}/models/language/*config.cpp ${ROOT}/models/training/run_config.cpp
     ${ROOT}/models/training/recipes.cpp ${ROOT}/models/training/slow_links.cpp ${ROOT}/models/tools/*.cpp)
names_in("[ \n](spec[.]add|spec[.]add_size|spec[.]add_choice|size)\\([ \n]*\"([a-z0-9-]+)\"" 2 flags
         ${sources})
list(TRANSFORM flags PREPEND "--")
expect_in(reference/flags.md "the flag" ${flags})
names_in("\n[|] `(--[a-z0-9-]+)`" 1 documented ${ROOT}/docs/reference/flags.md)
foreach(flag IN LISTS documented)
  if(NOT flag IN_LIST flags)
    list(APPEND problems "docs/reference/flags.md: ${flag} is no flag of a program")
  endif()
endforeach()

# Checks the column with other programs' names, in the first table that has the flag.
names_in("\"([a-z0-9-]+)\",[ \n]*\"[^{}]*\"[}]" 1 renamed ${ROOT}/base/option_synonyms.cpp)
file(STRINGS ${ROOT}/docs/reference/flags.md rows REGEX "^[|] `--")
list(REVERSE rows)
foreach(row IN LISTS rows)
  string(REGEX MATCH "^[|][^|]*" names "${row}")
  string(REGEX MATCHALL "--[a-z0-9-]+" names "${names}")
  foreach(name IN LISTS names)
    set(row_of_${name} "${row}")
  endforeach()
endforeach()
foreach(flag IN LISTS renamed)
  if(row_of_--${flag} MATCHES "^[|][^|]*[|][^|]*[|][^|]*[|] *[|]")
    list(APPEND problems "docs/reference/flags.md: no names of other programs for --${flag}")
  endif()
endforeach()

# ---- Environment variables ----

file(GLOB_RECURSE sources ${ROOT}/base/*.cpp ${ROOT}/kernels/*.cpp ${ROOT}/runtime/*.cpp
     ${ROOT}/comm/*.cpp ${ROOT}/models/*.cpp ${ROOT}/test/*.cpp ${ROOT}/test/*.h)
set(readers)
foreach(source IN LISTS sources)
  file(READ ${source} text)
  if(text MATCHES "getenv\\(")
    list(APPEND readers ${source})
  endif()
endforeach()
names_in("getenv\\(\"([A-Za-z0-9_]+)\"" 1 direct ${readers})
# Gets names that are passed to functions which call getenv. They contain an underscore, unlike
# other strings.
names_in("\"([A-Z][A-Z0-9]*_[A-Z0-9_]+|OMPI_MCA_[a-z_]+)\"" 1 handed ${readers})
expect_in(reference/files.md "the variable" ${direct} ${handed})

# ---- Metrics ----

set(report ${ROOT}/models/training/report)
names_in("\\\\\"([a-z_]+)\\\\\": " 1 columns ${report}/metrics.cpp)
names_in("json\\[\"([a-z_]+)\"\\] = [^n]" 1 keys ${report}/run_status.cpp)
names_in("[{]\"([a-z]+)\", " 1 sample_keys ${report}/samples_file.cpp)
names_in("\\\\\"([a-z]+)\\\\\": " 1 start_keys ${report}/starts_file.cpp)
list(APPEND keys ${sample_keys} ${start_keys})
names_in("[{(]\"([a-z]+_[a-z_]*[a-z])\", " 1 figures ${report}/rank_report.cpp)
names_in("\"(comm_[a-z_]+_)\"" 1 prefixes ${report}/rank_report.cpp)
foreach(prefix IN LISTS prefixes)
  foreach(axis IN ITEMS all shard replica reshard)
    list(APPEND figures "${prefix}${axis}")
  endforeach()
endforeach()
names_in("\\\\\"([a-z]+)\\\\\": " 1 warning_keys ${report}/warnings_file.cpp)
expect_in(reference/metrics.md "the column" ${columns} ${figures})
expect_in(reference/metrics.md "the key" ${keys} ${warning_keys})
names_in("\"(shale_[a-z_]*[a-z])\"" 1 gauges ${report}/prometheus.cpp)
# Conversely, the names on the page must exist, with their units. Names of counts are chosen by
# tasks.
file(STRINGS ${ROOT}/docs/reference/metrics.md rows REGEX "^[|] `[a-z_]+` [|]")
foreach(row IN LISTS rows)
  string(REGEX REPLACE "^[|] `([a-z_]+)` [|].*" "\\1" name "${row}")
  if(NOT name IN_LIST columns AND NOT name IN_LIST figures AND NOT name IN_LIST keys
     AND NOT name IN_LIST warning_keys AND NOT name IN_LIST gauges
     AND NOT name MATCHES "^(val_)?tokens(_per_s)?$|^shale_tokens_")
    list(APPEND problems "docs/reference/metrics.md: no row has ${name}")
  elseif(row MATCHES "^[|][^|]*[|] *[|]")
    list(APPEND problems "docs/reference/metrics.md: ${name} has no unit")
  endif()
endforeach()

# ---- Prometheus ----

expect_in(reference/metrics.md "the metric" ${gauges})
names_in("(shale_[a-z_]+)[{,]" 1 asked ${ROOT}/docs/grafana.json)
foreach(name IN LISTS asked)
  string(REGEX REPLACE "^shale_rank_" "" figure "${name}")
  # Names of counts are chosen by tasks, so they are not checked.
  if(NOT name IN_LIST gauges AND NOT figure IN_LIST figures AND NOT name MATCHES "^shale_tokens_")
    list(APPEND problems "docs/grafana.json: there is no metric ${name}")
  endif()
endforeach()

report_problems(pages)
foreach(list IN ITEMS flags renamed direct handed columns keys figures prefixes warning_keys gauges asked)
  if(NOT ${list})
    message(NOTICE "pages: no ${list} found under '${ROOT}', so nothing was checked")
    message(FATAL_ERROR "pages")
  endif()
endforeach()
message(STATUS "pages: ${names_seen} names of the code are in docs/")
