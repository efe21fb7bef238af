# cmake -DROOT=<tree> -DAWK=<awk> -P unity.cmake: fails, naming both places, when two sources that a
# unity build compiles together define the same name, which is an error only there.

cmake_minimum_required(VERSION 3.25)
include(${CMAKE_CURRENT_LIST_DIR}/report_problems.cmake)
include(${ROOT}/cmake/ShaleFolders.cmake)
set(problems)
set(united)
foreach(library IN LISTS SHALE_UNITED)
  foreach(folder IN LISTS SHALE_${library}_FOLDERS)
    file(GLOB sources RELATIVE ${ROOT} ${ROOT}/${folder}/*.cpp)
    list(APPEND united ${sources})
  endforeach()
endforeach()
foreach(source IN LISTS SHALE_ALONE)
  if(NOT source IN_LIST united)
    list(APPEND problems "cmake/ShaleFolders.cmake: SHALE_ALONE: found no ${source}")
  endif()
endforeach()
list(REMOVE_ITEM united ${SHALE_ALONE} ${SHALE_PROGRAMS})
execute_process(
  COMMAND ${AWK} -f ${CMAKE_CURRENT_LIST_DIR}/unity.awk ${united}
  WORKING_DIRECTORY ${ROOT}
  RESULT_VARIABLE failed
  OUTPUT_VARIABLE clashes
  OUTPUT_STRIP_TRAILING_WHITESPACE)
if(failed)
  list(APPEND problems "${clashes}"
    "rename one, share it through a header, or add a source to SHALE_ALONE in cmake/ShaleFolders.cmake")
endif()
report_problems(unity)
