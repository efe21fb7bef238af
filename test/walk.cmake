# cmake -DROOT=<tree> -P walk.cmake: compares the walk from a program to a kernel, in
# docs/explanation/architecture.md, with the code. The first link of each step is the step's file.
# Fails, naming the step, when
#  - no name in `code` of a step occurs both in its file and in the file of the next step (or its header);
#  - the walk does not start at train_lm, does not end in a kernel, or has more than 12 files.

cmake_minimum_required(VERSION 3.25)
include(${CMAKE_CURRENT_LIST_DIR}/report_problems.cmake)
set(page docs/explanation/architecture.md)
set(most_files 12)
set(problems)

# Reads the steps, one list element each, without line breaks.
file(READ ${ROOT}/${page} text)
string(REGEX MATCH "\n## A batch[^\n]*\n(.*)" text "${text}")
string(REGEX REPLACE "\n## .*" "" text "${CMAKE_MATCH_1}")
string(REGEX REPLACE "\n\n[A-Za-z].*" "" text "${text}")  # removes the text after the list
string(REGEX REPLACE "[][;]" " " text "${text}")  # replaces separators of CMake lists
string(REGEX REPLACE "\n+ +" " " text "${text}")
string(REGEX MATCHALL "\n[0-9]+[.] [^\n]+" steps "\n${text}")

set(files)
foreach(step IN LISTS steps)
  string(REGEX MATCH "\\([.][.]/[.][.]/([^)# ]+)\\)" link "${step}")
  list(APPEND files "${CMAKE_MATCH_1}")
endforeach()

# Checks if a name occurs in a file, or in its header.
function(names_it name file out)
  string(REGEX REPLACE "[.](cpp|cu)$" ".h" header ${file})
  set(found FALSE)
  foreach(source IN ITEMS ${file} ${header})
    if(EXISTS ${ROOT}/${source})
      file(READ ${ROOT}/${source} code)
      if("${code}" MATCHES "(^|[^A-Za-z0-9_])${name}([^A-Za-z0-9_]|$)")
        set(found TRUE)
      endif()
    endif()
  endforeach()
  set(${out} ${found} PARENT_SCOPE)
endfunction()

list(LENGTH files count)
if(count LESS 2 OR count GREATER most_files)
  list(APPEND problems "${page}: the walk has ${count} files, expected 2 to ${most_files}")
else()
  list(GET files 0 first)
  list(GET files -1 last)
  if(NOT first STREQUAL "models/train_lm.cpp" OR NOT last MATCHES "^kernels/(cpu|cuda)/.*norm")
    list(APPEND problems
      "${page}: the walk goes from ${first} to ${last}, expected from train_lm to a kernel of norms")
  endif()
  math(EXPR steps_to_check "${count} - 2")
  foreach(i RANGE ${steps_to_check})
    math(EXPR next "${i} + 1")
    list(GET steps ${i} step)
    list(GET files ${i} from)
    list(GET files ${next} to)
    set(leads FALSE)
    string(REGEX MATCHALL "`[^`]+`" codes "${step}")
    string(REGEX MATCHALL "[A-Za-z_][A-Za-z0-9_]+" names "${codes}")
    foreach(name IN LISTS names)
      names_it(${name} ${from} here)
      names_it(${name} ${to} there)
      if(here AND there)
        set(leads TRUE)
      endif()
    endforeach()
    if(NOT leads)
      list(JOIN names " " names)
      list(APPEND problems "${page}: step ${next}: nothing of '${names}' is in ${from} and ${to}")
    endif()
  endforeach()
endif()

report_problems(walk)
message(STATUS "walk: ${count} files from train_lm to a kernel")
