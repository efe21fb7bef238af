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
  target_include_directories(${target} PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>)
  target_compile_features(${target} PUBLIC cxx_std_20)
  target_link_libraries(${target} PUBLIC ${arg_PUBLIC} PRIVATE ${arg_PRIVATE})
  foreach(library IN LISTS arg_HEADER_ONLY)
    target_link_libraries(${target} PRIVATE $<BUILD_INTERFACE:${library}>)
  endforeach()
  set_target_properties(${target} PROPERTIES EXPORT_NAME ${name})
  add_library(shale::${name} ALIAS ${target})
endfunction()
