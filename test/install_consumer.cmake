# cmake -DROOT=<tree> -DBUILD=<build folder> -DSCRATCH=<folder> -DGENERATOR=<name> -DCOMPILER=<c++>
#       [-DFLAGS=<compiler flags>] -P install_consumer.cmake
# Installs the build into SCRATCH/prefix; builds and runs the project in test/install against it. Then
# configures that project with the tree as a part of it, and compiles what only needs its headers.

function(run what)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE result OUTPUT_VARIABLE output
                  ERROR_VARIABLE output)
  if(NOT result EQUAL 0)
    message(NOTICE "${output}")
    message(FATAL_ERROR "${what} failed: ${result}")
  endif()
endfunction()

# A header that is no longer installed must not be found from last time.
file(REMOVE_RECURSE ${SCRATCH})
set(configure ${CMAKE_COMMAND} -G ${GENERATOR} -S ${CMAKE_CURRENT_LIST_DIR}/install
    -DCMAKE_CXX_COMPILER=${COMPILER} "-DCMAKE_CXX_FLAGS=${FLAGS}")
run("install" ${CMAKE_COMMAND} --install ${BUILD} --prefix ${SCRATCH}/prefix)
run("configure" ${configure} -B ${SCRATCH}/build -DCMAKE_PREFIX_PATH=${SCRATCH}/prefix)
run("build" ${CMAKE_COMMAND} --build ${SCRATCH}/build)
run("consumer" ${SCRATCH}/build/consumer)

run("configure with the tree inside" ${configure} -B ${SCRATCH}/build_inside
    -DSHALE_SOURCE_DIR=${ROOT} -DSHALE_CUDA=OFF -DSHALE_EMULATOR=OFF)
run("build with the tree inside" ${CMAKE_COMMAND} --build ${SCRATCH}/build_inside
    --target own_folders own_folders_last)
