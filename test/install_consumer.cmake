# cmake -DBUILD=<build folder> -DSCRATCH=<folder> [-DFLAGS=<compiler flags>] -P install_consumer.cmake
# Installs the build into SCRATCH/prefix; builds and runs the project in test/install against it.

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
run("install" ${CMAKE_COMMAND} --install ${BUILD} --prefix ${SCRATCH}/prefix)
run("configure" ${CMAKE_COMMAND} -G ${GENERATOR} -S ${CMAKE_CURRENT_LIST_DIR}/install
    -B ${SCRATCH}/build -DCMAKE_PREFIX_PATH=${SCRATCH}/prefix -DCMAKE_CXX_COMPILER=${COMPILER}
    "-DCMAKE_CXX_FLAGS=${FLAGS}")
run("build" ${CMAKE_COMMAND} --build ${SCRATCH}/build)
run("consumer" ${SCRATCH}/build/consumer)
