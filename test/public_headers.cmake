# cmake -DROOT=<tree> -DAWK=<awk> -P public_headers.cmake: compares the public headers with the list
# in cmake/ShalePublicHeaders.cmake. Fails, naming file and line, when
#  - a file of include/shale is not on the list, a listed file does not exist, or there are more
#    than 60;
#  - a public header needs an internal one, which may include third-party headers;
#  - a public header, or one that it includes itself, has a declaration without a comment.

cmake_minimum_required(VERSION 3.25)
include(${CMAKE_CURRENT_LIST_DIR}/report_problems.cmake)
include(${CMAKE_CURRENT_LIST_DIR}/../cmake/ShaleFolders.cmake)
include(${CMAKE_CURRENT_LIST_DIR}/../cmake/ShalePublicHeaders.cmake)
set(most 60)
set(problems)
set(public ${SHALE_PUBLIC_HEADERS} ${SHALE_SIMT_HEADERS} ${SHALE_C_HEADERS})
list(SORT public)

# The links to the layers are not public headers.
file(GLOB_RECURSE files RELATIVE ${ROOT}/include/shale ${ROOT}/include/shale/*)
list(FILTER files EXCLUDE REGEX "^(base|bench|bindings|comm|kernels|models|runtime|test)(/|$)")
list(SORT files)
if(NOT files STREQUAL public)
  string(JOIN "\n  " report "include/shale has" ${files} "the list has" ${public})
  message(FATAL_ERROR "public_headers: ${report}")
endif()
list(LENGTH SHALE_PUBLIC_HEADERS count)
if(count GREATER most)
  list(APPEND problems "there are ${count} public headers, expected ${most} at most")
endif()

# Kernel headers are not checked: they include those of their backends, which are internal.
shale_headers_brought(brought ${ROOT} ${SHALE_PUBLIC_HEADERS})
foreach(header IN LISTS brought)
  if(header MATCHES "${SHALE_INTERNAL_HEADERS}")
    list(APPEND problems "public headers need the internal ${header}")
  endif()
endforeach()

set(explained)
foreach(name IN LISTS SHALE_PUBLIC_HEADERS)
  file(STRINGS ${ROOT}/include/shale/${name} lines LIMIT_COUNT 3)
  if(NOT lines MATCHES ";// ")
    list(APPEND problems "include/shale/${name}:3: no comment says what it brings")
  endif()
  shale_included_headers(included ${ROOT}/include/shale/${name})
  list(REMOVE_ITEM included ${public})
  list(TRANSFORM included PREPEND ${ROOT}/)
  list(APPEND explained ${included})
endforeach()
list(REMOVE_DUPLICATES explained)
execute_process(COMMAND ${AWK} -f ${CMAKE_CURRENT_LIST_DIR}/documented.awk ${explained}
                RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
if(NOT result EQUAL 0)
  string(REPLACE "${ROOT}/" "" output "${output}")
  if(output STREQUAL "")  # the script failed to run
    set(output "documented.awk by '${AWK}': ${result}")
  endif()
  list(APPEND problems "${output}")
endif()

# Every function of the C interface needs a comment, or must be in a group with one.
file(STRINGS ${ROOT}/include/shale/c.h lines)
set(explained_here FALSE)
set(count_c 0)
foreach(line IN LISTS lines)
  if(line STREQUAL "")
    set(explained_here FALSE)
  elseif(line MATCHES "^/[*] |^ [*] ")
    set(explained_here TRUE)
  elseif(line MATCHES "^SHALE_API .*(shale_[a-z_]+)[(]")
    math(EXPR count_c "${count_c} + 1")
    if(NOT explained_here)
      list(APPEND problems "include/shale/c.h: no comment says what ${CMAKE_MATCH_1} is")
    endif()
  endif()
endforeach()
if(count_c EQUAL 0)
  list(APPEND problems "include/shale/c.h: there are no functions")
endif()

report_problems(public_headers)
list(LENGTH explained count_explained)
message(STATUS "public_headers: ${count}; all declarations of ${count_explained} are explained")
