# cmake -DROOT=<tree> -DPREFIX=<where Shale is installed> -DSCRATCH=<folder> -DGENERATOR=<name>
#       -DCOMPILER=<c++> [-DFLAGS=<compiler flags>] -P install_consumer.cmake
# Builds and runs the project in test/install against the installed package. Checks two sizes: a
# package with shared libraries, or without CUDA, takes at most 1.0 GB; the program of one tensor
# takes at most 30 MB, stripped and with the library of Shale that it loads. Then configures that
# project with Shale's tree as a subdirectory, and compiles sources that need only Shale's headers.

include(${CMAKE_CURRENT_LIST_DIR}/run.cmake)

file(REMOVE_RECURSE ${SCRATCH})
set(configure ${CMAKE_COMMAND} -G ${GENERATOR} -S ${CMAKE_CURRENT_LIST_DIR}/install
    -DCMAKE_CXX_COMPILER=${COMPILER} "-DCMAKE_CXX_FLAGS=${FLAGS}")
run("configure" ${configure} -B ${SCRATCH}/build -DCMAKE_PREFIX_PATH=${PREFIX})
run("build" ${CMAKE_COMMAND} --build ${SCRATCH}/build)
run("consumer" ${SCRATCH}/build/consumer)

# size_of(<out> <file>...): gets the bytes of these files. A file with several links counts once.
function(size_of out)
  set(sum 0)
  foreach(file IN LISTS ARGN)
    if(NOT IS_SYMLINK ${file})
      file(SIZE ${file} bytes)
      math(EXPR sum "${sum} + ${bytes}")
    endif()
  endforeach()
  set(${out} ${sum} PARENT_SCOPE)
endfunction()
file(GLOB_RECURSE files ${PREFIX}/*)
size_of(installed ${files})
message(STATUS "install: ${installed} bytes, expected at most 1000000000")
file(GLOB static_cuda ${PREFIX}/lib*/libshale_kernels_cuda.a ${PREFIX}/lib/*/libshale_kernels_cuda.a)
# These builds may be larger: sanitized code is, and without SHALE_SHARED each program contains
# CUDA's kernels.
if(installed GREATER 1000000000 AND NOT FLAGS AND NOT static_cuda)
  message(FATAL_ERROR "install: ${PREFIX} has ${installed} bytes, expected at most 1000000000")
endif()
if(EXISTS ${SCRATCH}/build/one_tensor AND NOT FLAGS)
  run("one_tensor" ${SCRATCH}/build/one_tensor)
  file(GLOB libraries ${PREFIX}/lib*/libshale.so.*.*.* ${PREFIX}/lib/*/libshale.so.*.*.*)
  set(stripped)
  foreach(file IN ITEMS ${SCRATCH}/build/one_tensor ${libraries})
    cmake_path(GET file FILENAME name)
    run("strip" strip --strip-unneeded -o ${SCRATCH}/${name}.stripped ${file})
    list(APPEND stripped ${SCRATCH}/${name}.stripped)
  endforeach()
  size_of(bytes ${stripped})
  message(STATUS "one_tensor: ${bytes} bytes, expected at most 30000000")
  if(bytes GREATER 30000000)
    message(FATAL_ERROR "one_tensor: ${bytes} bytes in ${stripped}, expected at most 30000000")
  endif()
endif()

run("configure with the tree inside" ${configure} -B ${SCRATCH}/build_inside
    -DSHALE_SOURCE_DIR=${ROOT} -DSHALE_CUDA=OFF -DSHALE_EMULATOR=OFF)
run("build with the tree inside" ${CMAKE_COMMAND} --build ${SCRATCH}/build_inside
    --target own_folders own_folders_last)
