include(${CMAKE_CURRENT_LIST_DIR}/ShaleFolders.cmake)
include(${CMAKE_CURRENT_LIST_DIR}/ShaleKernels.cmake)

# Headers are included as <shale/...>, and no folder of the tree is on the include path by its own
# name. Links in include/shale lead to the layers: shale/runtime/tensor/tensor.h is
# runtime/tensor/tensor.h, for compilers, editors and code search alike.
set(shale_include_dir ${PROJECT_SOURCE_DIR}/include)

set(SHALE_TRACKER_NAMES ${PROJECT_SOURCE_DIR}/kernels/simt/engine/tracker_names.h
    CACHE INTERNAL "What emulated kernels are compiled with")

# shale_kernel_files(<out> <out for Hopper> <folder>...): the .cu files in these folders.
function(shale_kernel_files out out_hopper)
  list(TRANSFORM ARGN APPEND "/*.cu" OUTPUT_VARIABLE patterns)
  file(GLOB files CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR} ${patterns})
  shale_split_kernel_files(files hopper_files ${files})
  set(${out} ${files} PARENT_SCOPE)
  set(${out_hopper} ${hopper_files} PARENT_SCOPE)
endfunction()

# shale_add_layer(<name> FOLDERS ... [EXCLUDE ...] [PUBLIC ...] [PRIVATE ...] [HEADER_ONLY ...])
#
# Static library shale_<name>, exported as shale::<name>, of every .cpp directly in FOLDERS,
# less the files in EXCLUDE.
# HEADER_ONLY names libraries that only our own sources include: whoever links the installed
# archive needs nothing of them.
function(shale_add_layer name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "FOLDERS;EXCLUDE;PUBLIC;PRIVATE;HEADER_ONLY")
  list(TRANSFORM arg_FOLDERS APPEND "/*.cpp")
  file(GLOB sources CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR} ${arg_FOLDERS})
  list(REMOVE_ITEM sources ${arg_EXCLUDE})

  set(target shale_${name})
  add_library(${target} STATIC ${sources})
  target_include_directories(${target} PUBLIC $<BUILD_INTERFACE:${shale_include_dir}>)
  target_compile_features(${target} PUBLIC cxx_std_20)
  target_link_libraries(${target} PUBLIC ${arg_PUBLIC} PRIVATE ${arg_PRIVATE})
  foreach(library IN LISTS arg_HEADER_ONLY)
    target_link_libraries(${target} PRIVATE $<BUILD_INTERFACE:${library}>)
  endforeach()
  set_target_properties(${target} PROPERTIES EXPORT_NAME ${name})
  add_library(shale::${name} ALIAS ${target})
endfunction()
