# Generates shell completions (bash, zsh, fish) and manual pages from the programs' options at build
# time (option_files.awk), and installs them. Skips this without awk, and if the programs are built
# for another machine and cannot be run.

include(GNUInstallDirs)
find_program(AWK_EXECUTABLE NAMES awk gawk mawk)
if(NOT AWK_EXECUTABLE OR CMAKE_CROSSCOMPILING)
  message(STATUS "No completions and manual pages: awk is missing, or programs cannot run here")
  return()
endif()

set(option_files ${PROJECT_BINARY_DIR}/option_files)
set(completions)
foreach(target IN ITEMS train_lm train_image train_diffusion shale_tool)
  set(program ${target})
  if(target STREQUAL "shale_tool")
    set(program shale)
  endif()
  set(table ${option_files}/${program}.table)
  add_custom_command(
    OUTPUT ${table}
    COMMAND ${CMAKE_COMMAND} -E make_directory ${option_files}
    COMMAND $<TARGET_FILE:${target}> --help table > ${table}
    DEPENDS ${target}
    VERBATIM)
  foreach(kind IN ITEMS bash zsh fish man)
    set(page)
    if(kind STREQUAL "bash")
      set(name ${program})
      set(place ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
    elseif(kind STREQUAL "zsh")
      set(name _${program})
      set(place ${CMAKE_INSTALL_DATADIR}/zsh/site-functions)
    elseif(kind STREQUAL "fish")
      set(name ${program}.fish)
      set(place ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)
    else()
      set(name ${program}.1)
      set(place ${CMAKE_INSTALL_MANDIR}/man1)
      set(page ${PROJECT_SOURCE_DIR}/docs/reference/files.md)
    endif()
    set(file ${option_files}/${kind}/${name})
    add_custom_command(
      OUTPUT ${file}
      COMMAND ${CMAKE_COMMAND} -E make_directory ${option_files}/${kind}
      COMMAND ${AWK_EXECUTABLE} -v kind=${kind} -v program=${program} -v version=${PROJECT_VERSION}
              -f ${CMAKE_CURRENT_LIST_DIR}/option_files.awk ${table} ${page} > ${file}
      DEPENDS ${table} ${CMAKE_CURRENT_LIST_DIR}/option_files.awk ${page}
      VERBATIM)
    list(APPEND completions ${file})
    install(FILES ${file} DESTINATION ${place})
  endforeach()
endforeach()
add_custom_target(shale_option_files ALL DEPENDS ${completions})
