include(${CMAKE_CURRENT_LIST_DIR}/ShaleFolders.cmake)
include(${CMAKE_CURRENT_LIST_DIR}/ShaleKernels.cmake)

# Headers are included as <shale/...>; no folder of the tree is on the include path under its own
# name. Symbolic links in include/shale lead to the layers: shale/runtime/tensor/tensor.h is
# runtime/tensor/tensor.h. Compilers, editors and code search thus find it.
set(shale_include_dir ${PROJECT_SOURCE_DIR}/include)

set(SHALE_TRACKER_NAMES ${PROJECT_SOURCE_DIR}/kernels/simt/engine/tracker_names.h
    CACHE INTERNAL "Compiler options of emulated kernels")

# shale_kernel_files(<out> <out for Hopper> <folder>...): gets the .cu files in these folders.
function(shale_kernel_files out out_hopper)
  list(TRANSFORM ARGN APPEND "/*.cu" OUTPUT_VARIABLE patterns)
  file(GLOB files CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR} ${patterns})
  shale_split_kernel_files(files hopper_files ${files})
  set(${out} ${files} PARENT_SCOPE)
  set(${out_hopper} ${hopper_files} PARENT_SCOPE)
endfunction()

# shale_unite(<target> <source>...): in a unity build (CMAKE_UNITY_BUILD), compiles the sources of a
# folder together, a dozen at a time, so that their headers are read once.
function(shale_unite target)
  if(NOT CMAKE_UNITY_BUILD)
    return()
  endif()
  set_target_properties(${target} PROPERTIES UNITY_BUILD_MODE GROUP)
  # These warnings are wrong in united sources: a type may use a type of an unnamed namespace, and a
  # function may be unused.
  target_compile_options(${target} PRIVATE -Wno-subobject-linkage -Wno-unused-function)
  foreach(source IN LISTS ARGN)
    cmake_path(GET source PARENT_PATH folder)
    if(source IN_LIST SHALE_ALONE)
      set_source_files_properties(${source} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
      continue()
    endif()
    string(MAKE_C_IDENTIFIER "${folder}" name)
    list(APPEND of_${name} ${source})
    list(LENGTH of_${name} count)
    math(EXPR group "${count} / 12")
    set_source_files_properties(${source} PROPERTIES UNITY_GROUP ${name}_${group})
  endforeach()
endfunction()

# shale_add_layer(<name> FOLDERS ... [EXCLUDE ...] [PUBLIC ...] [PRIVATE ...] [HEADER_ONLY ...])
#
# Adds the static library shale_<name>, exported as shale::<name>, of every .cpp directly in
# FOLDERS, without the files in EXCLUDE. HEADER_ONLY names libraries that only Shale's sources
# include: users of the installed archive do not need them.
function(shale_add_layer name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "FOLDERS;EXCLUDE;PUBLIC;PRIVATE;HEADER_ONLY")
  list(TRANSFORM arg_FOLDERS APPEND "/*.cpp")
  file(GLOB sources CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR} ${arg_FOLDERS})
  list(REMOVE_ITEM sources ${arg_EXCLUDE})

  set(target shale_${name})
  add_library(${target} STATIC ${sources})
  shale_unite(${target} ${sources})
  target_include_directories(${target} PUBLIC $<BUILD_INTERFACE:${shale_include_dir}>)
  target_compile_features(${target} PUBLIC cxx_std_20)
  target_link_libraries(${target} PUBLIC ${arg_PUBLIC} PRIVATE ${arg_PRIVATE})
  foreach(library IN LISTS arg_HEADER_ONLY)
    target_link_libraries(${target} PRIVATE $<BUILD_INTERFACE:${library}>)
  endforeach()
  set_target_properties(${target} PROPERTIES EXPORT_NAME ${name})
  add_library(shale::${name} ALIAS ${target})
endfunction()

# shale_add_page(<target>): embeds models/views/page as text (models/views/page_text.h).
function(shale_add_page target)
  set(html "@page.html@")
  foreach(file IN ITEMS page.html page.css charts.js page.js)
    set(path ${PROJECT_SOURCE_DIR}/models/views/page/${file})
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${path})
    file(READ ${path} text)
    string(REPLACE "@${file}@" "${text}" html "${html}")
  endforeach()
  string(REPLACE "@feed@" ")page\";\nconst char* const kPageEnd = R\"page(" html "${html}")
  file(GENERATE OUTPUT ${PROJECT_BINARY_DIR}/page_text.cpp CONTENT
    "#include \"shale/models/views/page_text.h\"\n\nnamespace shale::models {
const char* const kPageStart = R\"page(${html})page\";\n}  // namespace shale::models\n")
  target_sources(${target} PRIVATE ${PROJECT_BINARY_DIR}/page_text.cpp)
endfunction()
