# cmake -DBUILD=<build folder> -DPREFIX=<folder> -P install.cmake
# Installs the build into PREFIX, for tests of the installation. Fails if it contains a header that
# no public header needs, or if a program lacks its completions or manual page. Also fails if a
# second installation rewrites a header, which would make all its users compile again.

include(${CMAKE_CURRENT_LIST_DIR}/run.cmake)
include(${CMAKE_CURRENT_LIST_DIR}/../cmake/ShalePublicHeaders.cmake)

# Removes the headers of an earlier installation.
file(REMOVE_RECURSE ${PREFIX})
run("install" ${CMAKE_COMMAND} --install ${BUILD} --prefix ${PREFIX})

set(include_dir ${PREFIX}/include/shale)
file(GLOB_RECURSE headers RELATIVE ${include_dir} ${include_dir}/*)
set(public ${SHALE_PUBLIC_HEADERS} ${SHALE_SIMT_HEADERS} ${SHALE_C_HEADERS})
list(TRANSFORM SHALE_SIMT_SUPPORT PREPEND detail/ OUTPUT_VARIABLE needed)
list(APPEND needed ${public})
foreach(name IN LISTS headers)
  shale_included_headers(included ${include_dir}/${name})
  foreach(header IN LISTS included)
    if(NOT header IN_LIST headers)
      message(FATAL_ERROR "install: shale/${name} includes shale/${header}, which is not installed")
    endif()
    list(APPEND needed ${header})
  endforeach()
endforeach()
foreach(name IN LISTS headers)
  if(NOT name IN_LIST needed)
    message(FATAL_ERROR "install: no public header needs shale/${name}")
  elseif(NOT name IN_LIST public AND NOT name MATCHES "^detail/")
    message(FATAL_ERROR "install: shale/${name} is not on the list of public headers")
  endif()
endforeach()

foreach(program IN ITEMS train_lm train_image train_diffusion shale)
  foreach(file IN ITEMS bin/${program} share/bash-completion/completions/${program}
          share/zsh/site-functions/_${program} share/fish/vendor_completions.d/${program}.fish
          share/man/man1/${program}.1)
    if(NOT EXISTS ${PREFIX}/${file})
      message(FATAL_ERROR "install: there is no ${file}")
    endif()
  endforeach()
endforeach()

file(TIMESTAMP ${include_dir}/nn.h first "%s")
execute_process(COMMAND ${CMAKE_COMMAND} -E sleep 1.1)
run("install again" ${CMAKE_COMMAND} --install ${BUILD} --prefix ${PREFIX})
file(TIMESTAMP ${include_dir}/nn.h second "%s")
if(NOT first STREQUAL second)
  message(FATAL_ERROR "install: the second time wrote shale/nn.h anew")
endif()
list(LENGTH headers count)
list(LENGTH public count_public)
message(STATUS "install: ${count_public} public headers, ${count} files in all")
