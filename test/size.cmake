# cmake -DROOT=<tree> -DAWK=<awk> -P size.cmake: compares the tree with the sizes in test/size.txt.
# Fails when a folder has more lines of code than its row says, or so many fewer that the row must
# be lowered. Also fails when more files than before include a header that is slow to compile. A
# commit that needs more raises the row and says why.

cmake_minimum_required(VERSION 3.25)
include(${CMAKE_CURRENT_LIST_DIR}/report_problems.cmake)
set(slack 600)  # by how many lines a row may exceed the lines of its folder
set(problems)

# code_of(<out> <folder>...): the code files of the folders.
function(code_of out)
  set(patterns)
  foreach(folder IN LISTS ARGN)
    foreach(ending IN ITEMS cpp h cu cuh c py inl inc)
      list(APPEND patterns ${ROOT}/${folder}/*.${ending})
    endforeach()
  endforeach()
  file(GLOB_RECURSE files ${patterns})
  set(${out} ${files} PARENT_SCOPE)
endfunction()

file(STRINGS ${ROOT}/test/size.txt rows REGEX "^[^#]")
foreach(row IN LISTS rows)
  string(REGEX REPLACE " +" ";" cells "${row}")
  list(POP_FRONT cells kind what limit)
  if(kind STREQUAL "lines")
    code_of(files ${what})
    execute_process(COMMAND ${AWK} "END { print NR }" ${files}
                    OUTPUT_VARIABLE found OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
    math(EXPR least "${limit} - ${slack}")
    if(found LESS least)
      list(APPEND problems "test/size.txt: ${what} has ${found} lines, far below its row: lower it")
    endif()
  else()
    code_of(files ${cells})
    if(kind STREQUAL "headers")
      list(FILTER files INCLUDE REGEX "[.]h$")
    endif()
    set(found 0)
    foreach(file IN LISTS files)
      file(STRINGS ${file} included REGEX "^#include <${what}>")
      if(included)
        math(EXPR found "${found} + 1")
      endif()
    endforeach()
  endif()
  if(found GREATER limit)
    list(APPEND problems "test/size.txt: ${kind} ${what}: expected at most ${limit}, found ${found}")
  endif()
endforeach()
report_problems(size)
