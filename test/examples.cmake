# cmake -DROOT=<tree> -P examples.cmake: compares examples/ with the pages. Fails when
#  - the program in README.md differs from examples/03_fully_shard/main.cpp without its first
#    comment;
#  - a folder is missing in examples/README.md or in examples/CMakeLists.txt, or has no
#    CMakeLists.txt;
#  - a main.cpp does not start with a comment that says what it shows and how to run it;
#  - C++ or Python code in a page about examples is in none of them, ignoring white space.

cmake_minimum_required(VERSION 3.25)
set(problems)

# Reads a text and replaces characters with a meaning in CMake lists: separators and brackets.
function(read_text file out)
  file(READ ${file} text)
  string(REPLACE ";" "<semicolon>" text "${text}")
  set(${out} "${text}" PARENT_SCOPE)
endfunction()

read_text(${ROOT}/README.md readme)
read_text(${ROOT}/examples/03_fully_shard/main.cpp program)
if(NOT readme MATCHES "```cpp\n(.*)```\n")
  message(FATAL_ERROR "examples: README.md has no program")
endif()
string(REGEX REPLACE "```.*" "" shown "${CMAKE_MATCH_1}")
string(REGEX REPLACE "^(//[^\n]*\n)+" "" program "${program}")
if(NOT shown STREQUAL program)
  list(APPEND problems "README.md's program is not that of examples/03_fully_shard")
endif()

read_text(${ROOT}/examples/README.md page)
read_text(${ROOT}/examples/CMakeLists.txt build)
file(GLOB folders RELATIVE ${ROOT}/examples ${ROOT}/examples/[0-9]* ${ROOT}/examples/c)
foreach(folder IN LISTS folders)
  set(main main.cpp)
  if(folder STREQUAL "c")
    set(main main.c)
  endif()
  read_text(${ROOT}/examples/${folder}/${main} program)
  if(NOT program MATCHES "^(//|/[*]) [^\n]*\n( *(//|[*])[^\n]*\n)* *(//|[*]) Run: ")
    list(APPEND problems "examples/${folder}/${main} does not begin with what it shows, and Run:")
  endif()
  if(NOT EXISTS ${ROOT}/examples/${folder}/CMakeLists.txt)
    list(APPEND problems "examples/${folder} has no CMakeLists.txt")
  endif()
  if(NOT page MATCHES "[(]${folder}/${main}[)]")
    list(APPEND problems "examples/README.md: no link to ${folder}/${main}")
  endif()
  if(NOT build MATCHES "add_subdirectory[(]${folder}[)]")
    list(APPEND problems "examples/CMakeLists.txt: no ${folder}")
  endif()
endforeach()

# Sets <out> to the text without white space, brackets, and other characters with a meaning in CMake
# lists.
function(compact text out)
  string(REGEX REPLACE "[][ \n]+" "" text "${text}")
  set(${out} "${text}" PARENT_SCOPE)
endfunction()

set(code)
file(GLOB sources ${ROOT}/examples/*/*.cpp ${ROOT}/examples/*/*.h ${ROOT}/examples/*/*.cu
     ${ROOT}/examples/python/*.py)
foreach(source IN LISTS sources)
  read_text(${source} text)
  compact("${text}" text)
  string(APPEND code "${text}\n")
endforeach()
set(block_count 0)
foreach(page IN ITEMS tutorials/embedding.md howto/prefetch_and_precision.md)
  read_text(${ROOT}/docs/${page} text)
  string(REGEX REPLACE "[][]" "" text "${text}")
  string(REGEX MATCHALL "```(cpp|python)\n[^`]*```" blocks "${text}")
  foreach(block IN LISTS blocks)
    math(EXPR block_count "${block_count} + 1")
    string(REGEX REPLACE "```(cpp|python)?" "" block "${block}")
    compact("${block}" compacted)
    string(FIND "${code}" "${compacted}" place)
    if(place EQUAL -1)
      list(APPEND problems "docs/${page}: code that is in no example:${block}")
    endif()
  endforeach()
endforeach()
if(block_count EQUAL 0)
  list(APPEND problems "examples: no code found in the pages about them")
endif()

if(problems OR NOT folders)
  list(JOIN problems "\n" report)
  message(NOTICE "${report}")
  message(FATAL_ERROR "examples")
endif()
