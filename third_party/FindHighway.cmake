# Finds Google Highway 1.x: target Highway::hwy, variable Highway_VERSION. Highway has had a CMake
# package since 1.0; distributions without the package still have the header and library.

find_package(hwy CONFIG QUIET)
if(TARGET hwy::hwy)
  set(Highway_VERSION ${hwy_VERSION})
  set(Highway_LIBRARY hwy::hwy)
else()
  find_path(Highway_INCLUDE_DIR NAMES hwy/highway.h)
  find_library(Highway_LIBRARY NAMES hwy)
  mark_as_advanced(Highway_INCLUDE_DIR Highway_LIBRARY)
  foreach(header IN ITEMS hwy/base.h hwy/highway.h)
    if(NOT Highway_VERSION AND EXISTS ${Highway_INCLUDE_DIR}/${header})
      file(STRINGS ${Highway_INCLUDE_DIR}/${header} lines
           REGEX "#define HWY_(MAJOR|MINOR|PATCH) ")
      string(REGEX MATCHALL "[0-9]+" numbers "${lines}")
      list(JOIN numbers "." Highway_VERSION)
    endif()
  endforeach()
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(
  Highway
  REQUIRED_VARS Highway_LIBRARY
  VERSION_VAR Highway_VERSION)

if(Highway_FOUND AND NOT TARGET Highway::hwy)
  if(TARGET ${Highway_LIBRARY})
    add_library(Highway::hwy INTERFACE IMPORTED)
    target_link_libraries(Highway::hwy INTERFACE ${Highway_LIBRARY})
  else()
    add_library(Highway::hwy UNKNOWN IMPORTED)
    set_target_properties(
      Highway::hwy PROPERTIES IMPORTED_LOCATION ${Highway_LIBRARY}
                              INTERFACE_INCLUDE_DIRECTORIES ${Highway_INCLUDE_DIR})
  endif()
endif()
