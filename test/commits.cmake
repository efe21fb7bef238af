# cmake -DROOT=<tree> -P commits.cmake: checks commit messages against docs/contributing/style.md as
# far as possible: a subject of at most 72 characters that starts with a capital letter, has no full stop
# at its end and does not mark unfinished work; an empty line after it. Ignores older commits.
#
# cmake -DMESSAGE=<file> -P commits.cmake checks one message, as the hook commit-msg does.

cmake_minimum_required(VERSION 3.25)
include(${CMAKE_CURRENT_LIST_DIR}/report_problems.cmake)
set(last_unchecked 4288dbc3a3ccd4a185415bb98a3fb38fc22b4c9f)
set(most 72)
set(problems)

# check_message(<name> <message>): appends to problems.
function(check_message name message)
  string(REGEX MATCH "^[^\n]*" subject "${message}")
  string(LENGTH "${subject}" length)
  set(where "${name} '${subject}'")
  if(length GREATER most)
    list(APPEND problems "${where}: the subject has ${length} characters, expected at most ${most}")
  endif()
  if(NOT subject MATCHES "^[A-Z]")
    list(APPEND problems "${where}: the subject does not begin with a capital letter")
  endif()
  if(subject MATCHES "[.]$")
    list(APPEND problems "${where}: the subject ends with a full stop")
  endif()
  string(TOLOWER "${subject}" lower)
  if(lower MATCHES "^(fixup|squash|amend)!|(^|[^a-z])wip([^a-z]|$)")
    list(APPEND problems "${where}: the subject is that of unfinished work")
  endif()
  if("${message}" MATCHES "^[^\n]*\n[^\n]")
    list(APPEND problems "${where}: expected an empty line after the subject")
  endif()
  set(problems ${problems} PARENT_SCOPE)
endfunction()

if(MESSAGE)
  file(READ ${MESSAGE} message)
  string(REGEX REPLACE "(^|\n)#[^\n]*" "" message "${message}")
  string(REPLACE ";" "," message "${message}")
  check_message("the message" "${message}")
  report_problems(commits)
  return()
endif()

find_program(GIT git)
if(NOT GIT OR NOT EXISTS ${ROOT}/.git)
  message("skipped: the tree is not a git clone, or there is no git")
  return()
endif()
# If the clone lacks that commit, all commits that it has are checked.
execute_process(COMMAND ${GIT} -C ${ROOT} cat-file -e ${last_unchecked}
                RESULT_VARIABLE missing OUTPUT_QUIET ERROR_QUIET)
if(missing)
  message("skipped: this clone has no history")
  return()
endif()
execute_process(
  COMMAND ${GIT} -C ${ROOT} log --no-merges --format=%h%n%B%x01 ${last_unchecked}..HEAD
  OUTPUT_VARIABLE log COMMAND_ERROR_IS_FATAL ANY)
string(REGEX REPLACE "[][;]" "," log "${log}")  # these characters separate and group CMake lists
string(ASCII 1 end)
string(REPLACE "${end}" ";" log "${log}")
foreach(entry IN LISTS log)
  string(STRIP "${entry}" entry)
  if(entry MATCHES "^([0-9a-f]+)\n(.*)$")
    check_message("${CMAKE_MATCH_1}" "${CMAKE_MATCH_2}")
  endif()
endforeach()
report_problems(commits)
