# Finds oneDNN with API 2 or 3: target oneDNN::oneDNN, variable oneDNN_VERSION.
#
# The header and the shared library are looked for first, because the CMake packages of builds with
# a GPU runtime (Debian's is one) require OpenCL's development files, which a CPU user does not
# have.

find_path(oneDNN_INCLUDE_DIR NAMES dnnl.hpp)
find_library(oneDNN_LIBRARY NAMES dnnl)
mark_as_advanced(oneDNN_INCLUDE_DIR oneDNN_LIBRARY)

if(NOT (oneDNN_INCLUDE_DIR AND oneDNN_LIBRARY))
  find_package(dnnl CONFIG QUIET)
  if(TARGET DNNL::dnnl)
    get_target_property(oneDNN_INCLUDE_DIR DNNL::dnnl INTERFACE_INCLUDE_DIRECTORIES)
    set(oneDNN_LIBRARY DNNL::dnnl)
  endif()
endif()

foreach(header IN ITEMS oneapi/dnnl/dnnl_version.h dnnl_version.h)
  foreach(folder IN LISTS oneDNN_INCLUDE_DIR)
    if(NOT oneDNN_VERSION AND EXISTS ${folder}/${header})
      file(STRINGS ${folder}/${header} lines REGEX "#define DNNL_VERSION_(MAJOR|MINOR|PATCH) ")
      string(REGEX MATCHALL "[0-9]+" numbers "${lines}")
      list(JOIN numbers "." oneDNN_VERSION)
    endif()
  endforeach()
endforeach()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(
  oneDNN
  REQUIRED_VARS oneDNN_LIBRARY oneDNN_INCLUDE_DIR
  VERSION_VAR oneDNN_VERSION)

if(oneDNN_FOUND AND NOT TARGET oneDNN::oneDNN)
  if(TARGET ${oneDNN_LIBRARY})
    add_library(oneDNN::oneDNN INTERFACE IMPORTED)
    target_link_libraries(oneDNN::oneDNN INTERFACE ${oneDNN_LIBRARY})
  else()
    add_library(oneDNN::oneDNN UNKNOWN IMPORTED)
    set_target_properties(
      oneDNN::oneDNN PROPERTIES IMPORTED_LOCATION ${oneDNN_LIBRARY}
                                INTERFACE_INCLUDE_DIRECTORIES ${oneDNN_INCLUDE_DIR})
  endif()
endif()
