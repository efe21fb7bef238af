# cmake -DROOT=<tree> -P layering.cmake: fails, naming file and line, when
#  - a source includes a header of a layer above its own;
#  - an installed header includes a third-party one, which its users would then need.

# Lowest first. A folder belongs to the first layer whose pattern it matches.
set(layers base kernels runtime comm models bench test)
set(pattern_base "^base/")
set(pattern_kernels "^kernels/")
set(pattern_runtime "^runtime/")
set(pattern_comm "^comm/")
set(pattern_models "^models/")
set(pattern_bench "^bench/")
set(pattern_test "^test/")

include(${CMAKE_CURRENT_LIST_DIR}/../cmake/ShaleFolders.cmake)
set(third_party "^(mpi|omp|nccl|cudnn|cuda[a-z_0-9]*|dnnl[a-z_]*)[.]h|^dnnl|^(oneapi|hwy|spdlog|fmt|CLI|nlohmann)/")

function(layer_of path out)
  foreach(layer IN LISTS layers)
    if(path MATCHES "${pattern_${layer}}")
      list(FIND layers ${layer} index)
      set(${out} ${index} PARENT_SCOPE)
      return()
    endif()
  endforeach()
  set(${out} -1 PARENT_SCOPE)
endfunction()

set(violations)
set(includes_seen 0)
file(GLOB_RECURSE sources RELATIVE ${ROOT}
  ${ROOT}/base/* ${ROOT}/runtime/* ${ROOT}/kernels/* ${ROOT}/comm/* ${ROOT}/models/*)
list(FILTER sources INCLUDE REGEX "[.](h|cpp|cu|cuh|inc)$")

foreach(source IN LISTS sources)
  layer_of(${source} source_layer)
  cmake_path(GET source PARENT_PATH folder)
  # The semicolons of other lines never get here, so a CMake list holds the lines safely.
  file(STRINGS ${ROOT}/${source} include_lines REGEX "^[ \t]*#[ \t]*include[ \t]*[\"<]")
  foreach(include_line IN LISTS include_lines)
    string(REGEX REPLACE "^[ \t]*#[ \t]*include[ \t]*[\"<]([^\">]*)[\">].*" "\\1" included
           "${include_line}")
    math(EXPR includes_seen "${includes_seen} + 1")

    set(problem)
    # What a path names, seen from the tree's root: "x.h" and "../x.h" start from the folder.
    string(REGEX REPLACE "^shale/" "" target "${included}")
    if(NOT EXISTS ${ROOT}/${target})
      cmake_path(SET beside NORMALIZE "${folder}/${included}")
      if(EXISTS ${ROOT}/${beside})
        set(target ${beside})
      endif()
    endif()
    layer_of(${target} target_layer)
    if(target_layer GREATER source_layer)
      list(GET layers ${source_layer} lower)
      list(GET layers ${target_layer} higher)
      set(problem "${lower} includes ${target} of the higher layer ${higher}")
    elseif(source MATCHES "[.]h$" AND NOT source MATCHES "${SHALE_INTERNAL_HEADERS}"
           AND included MATCHES "${third_party}")
      set(problem "an installed header includes the third-party ${included}; include it in the "
                  ".cpp, or name the header *_internal.h")
      string(CONCAT problem ${problem})
    endif()

    if(problem)
      # Line numbers are looked up only for what is reported.
      file(READ ${ROOT}/${source} text)
      string(FIND "${text}" "${include_line}" offset)
      string(SUBSTRING "${text}" 0 ${offset} before)
      string(REGEX MATCHALL "\n" newlines "${before}")
      list(LENGTH newlines line)
      math(EXPR line "${line} + 1")
      list(APPEND violations "${source}:${line}: ${problem}")
    endif()
  endforeach()
endforeach()

if(includes_seen EQUAL 0)
  message(NOTICE "layering: no includes found under '${ROOT}', so nothing was checked")
  message(FATAL_ERROR "layering")
endif()
if(violations)
  # A notice keeps its lines as they are; an error is wrapped at 80 columns.
  list(JOIN violations "\n" report)
  message(NOTICE "${report}")
  message(FATAL_ERROR "layering")
endif()
list(LENGTH sources source_count)
message(STATUS "layering: ${includes_seen} includes in ${source_count} files respect the layers")
