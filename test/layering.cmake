# cmake -DROOT=<tree> -P layering.cmake: fails, naming file and line, when
#  - a source includes a header of a higher layer;
#  - sibling folders include from each other, directly or through other folders;
#  - a source includes a public header, such as shale/nn.h; these are for other programs;
#  - a header that is not internal includes a third-party one, which users would then need;
#  - a source is in a folder that cmake/ShaleFolders.cmake does not list;
#  - a source besides base/json.cpp, or a test besides two that read JSON independently of it,
#    includes the JSON library, which takes seconds to compile;
#  - a layer, an op, an optimizer or a model names communication between ranks:
#    runtime/nn/distribution.h is the only interface to it.
# A folder and its subfolders may include from each other: a concept and its implementations.

cmake_minimum_required(VERSION 3.25)
include(${CMAKE_CURRENT_LIST_DIR}/../cmake/ShaleFolders.cmake)
include(${CMAKE_CURRENT_LIST_DIR}/../cmake/ShalePublicHeaders.cmake)
set(layers ${SHALE_LAYERS} bindings bench test)
set(third_party "^(mpi|omp|nccl|cudnn|cuda[a-z_0-9]*|dnnl[a-z_]*)[.]h|^dnnl|^(oneapi|hwy|spdlog|fmt|CLI|toml[+][+])/")

set(listed_folders)
get_cmake_property(variables VARIABLES)
list(FILTER variables INCLUDE REGEX "^SHALE_[a-z_]+_FOLDERS$")
foreach(variable IN LISTS variables)
  list(APPEND listed_folders ${${variable}})
endforeach()

set(violations)
set(includes_seen 0)
set(edges)  # "<folder>|<its sibling>", each once; why_<edge> is the first such include

# layer_of(<path> <out>): index of a path's layer; -1: none.
function(layer_of path out)
  string(REGEX REPLACE "/.*" "" folder "${path}")
  list(FIND layers "${folder}" index)
  set(${out} ${index} PARENT_SCOPE)
endfunction()

# report(<source> <line's text> <problem>); looks up the line number.
function(report source text problem)
  file(READ ${ROOT}/${source} content)
  string(FIND "${content}" "${text}" offset)
  string(SUBSTRING "${content}" 0 ${offset} before)
  string(REGEX MATCHALL "\n" newlines "${before}")
  list(LENGTH newlines line)
  math(EXPR line "${line} + 1")
  set(violations ${violations} "${source}:${line}: ${problem}" PARENT_SCOPE)
endfunction()

# add_edge(<source> <target> <why>): adds an edge between the sibling folders that contain <source>
# and <target>.
function(add_edge source target)
  set(common "")
  while(TRUE)
    if(NOT source MATCHES "^([^/]+)/(.*)$")
      return()  # the source is directly in the common folder
    endif()
    set(from ${CMAKE_MATCH_1})
    set(source_rest ${CMAKE_MATCH_2})
    if(NOT target MATCHES "^([^/]+)/(.*)$")
      return()
    endif()
    set(to ${CMAKE_MATCH_1})
    if(NOT from STREQUAL to)
      break()
    endif()
    set(source ${source_rest})
    set(target ${CMAKE_MATCH_2})
    string(APPEND common "${from}/")
  endwhile()
  set(edge "${common}${from}|${common}${to}")
  if(NOT DEFINED why_${edge})
    set(edges ${edges} ${edge} PARENT_SCOPE)
    set(why_${edge} "${ARGN}" PARENT_SCOPE)
  endif()
endfunction()

file(GLOB_RECURSE sources RELATIVE ${ROOT}
  ${ROOT}/base/* ${ROOT}/runtime/* ${ROOT}/kernels/* ${ROOT}/comm/* ${ROOT}/models/*
  ${ROOT}/bindings/c/*)
list(FILTER sources INCLUDE REGEX "[.](h|cpp|cu|cuh|inc)$")

foreach(source IN LISTS sources)
  layer_of(${source} source_layer)
  cmake_path(GET source PARENT_PATH folder)
  if(NOT folder IN_LIST listed_folders)
    list(APPEND violations "${source}: cmake/ShaleFolders.cmake has no folder ${folder}")
  endif()
  # Reads only include lines, because semicolons in other lines would split the CMake list.
  file(STRINGS ${ROOT}/${source} include_lines REGEX "^[ \t]*#[ \t]*include[ \t]*[\"<]")
  foreach(include_line IN LISTS include_lines)
    string(REGEX REPLACE "^[ \t]*#[ \t]*include[ \t]*[\"<]([^\">]*)[\">].*" "\\1" included
           "${include_line}")
    math(EXPR includes_seen "${includes_seen} + 1")

    if(included MATCHES "^shale/(.*)$")
      set(target ${CMAKE_MATCH_1})
      layer_of(${target} target_layer)
      if(target IN_LIST SHALE_PUBLIC_HEADERS OR target IN_LIST SHALE_SIMT_HEADERS)
        report(${source} "${include_line}" "${target} is for other programs, expected what it includes")
      elseif(target_layer GREATER source_layer)
        list(GET layers ${source_layer} lower)
        list(GET layers ${target_layer} higher)
        report(${source} "${include_line}"
               "${lower} includes ${target} of the higher layer ${higher}")
      elseif(target_layer EQUAL source_layer)
        add_edge(${source} ${target} "${source} includes ${target}")
      endif()
    elseif(include_line MATCHES "\"" OR EXISTS ${ROOT}/${included})
      report(${source} "${include_line}" "expected the header's whole name, shale/..., found ${included}")
    elseif(source MATCHES "[.]h$" AND NOT source MATCHES "${SHALE_INTERNAL_HEADERS}"
           AND NOT source IN_LIST SHALE_MPI_HEADERS AND included MATCHES "${third_party}")
      report(${source} "${include_line}" "a header includes the third-party ${included}; \
include it in the .cpp, or name the header *_internal.h")
    endif()
  endforeach()
endforeach()

set(json_users base/json.cpp test/cli/json_value.cpp test/cli/manifest_check.cpp)
file(GLOB_RECURSE others RELATIVE ${ROOT}
  ${ROOT}/bench/* ${ROOT}/bindings/* ${ROOT}/examples/* ${ROOT}/test/*)
list(FILTER others INCLUDE REGEX "[.](h|cpp|cu|cuh|inc)$")
foreach(source IN LISTS sources others)
  file(STRINGS ${ROOT}/${source} include_lines REGEX "^[ \t]*#[ \t]*include[ \t]*[\"<]nlohmann/")
  if(include_lines AND NOT source IN_LIST json_users)
    list(GET include_lines 0 include_line)
    report(${source} "${include_line}" "expected shale/base/json.h in place of the JSON library")
  endif()
endforeach()

set(exchanges "(Exchange|CutSequence|ExpertExchange|MeshDistribution|RowPieces)")
foreach(source IN LISTS sources)
  if(NOT source MATCHES "^(runtime|models/(gpt2|llama|vit|dit|resnet))/"
     OR source MATCHES "^runtime/(tensor/|ops/row_gemm[.]cpp$)")
    continue()
  endif()
  file(STRINGS ${ROOT}/${source} named LIMIT_COUNT 1
       REGEX "(^|[^A-Za-z_])${exchanges}([^A-Za-z_]|$)|shale/comm/parallel/")
  if(named)
    list(GET named 0 line)
    report(${source} "${line}" "is written for one rank, expected Module::distribution()")
  endif()
endforeach()

# Repeatedly removes folders without incoming or without outgoing edges, until only cycles and the
# edges between them are left.
set(changed TRUE)
while(changed)
  set(changed FALSE)
  list(TRANSFORM edges REPLACE "[|].*" "" OUTPUT_VARIABLE needing)
  list(TRANSFORM edges REPLACE ".*[|]" "" OUTPUT_VARIABLE needed)
  foreach(edge from to IN ZIP_LISTS edges needing needed)
    if(NOT to IN_LIST needing OR NOT from IN_LIST needed)
      list(REMOVE_ITEM edges ${edge})
      set(changed TRUE)
    endif()
  endforeach()
endwhile()
foreach(edge IN LISTS edges)
  list(APPEND violations "folders include from each other: ${why_${edge}}")
endforeach()

if(includes_seen EQUAL 0)
  message(NOTICE "layering: no includes found under '${ROOT}', so nothing was checked")
  message(FATAL_ERROR "layering")
endif()
if(violations)
  # CMake prints a notice unchanged, but wraps an error at 80 columns.
  list(JOIN violations "\n" report)
  message(NOTICE "${report}")
  message(FATAL_ERROR "layering")
endif()
list(LENGTH sources source_count)
message(STATUS "layering: ${includes_seen} includes in ${source_count} files respect the layers")
