# cmake -DROOT=<tree> -DPREFIX=<where Shale is installed> -DSCRATCH=<folder> -DGENERATOR=<name>
#       -DCOMPILER=<c++> [-DFLAGS=<compiler flags>] -P install_consumer.cmake
# Builds and runs the project in test/install against the installed package. Then configures that
# project with Shale's tree as a subdirectory, and compiles what only needs its headers.

include(${CMAKE_CURRENT_LIST_DIR}/run.cmake)

file(REMOVE_RECURSE ${SCRATCH})
set(configure ${CMAKE_COMMAND} -G ${GENERATOR} -S ${CMAKE_CURRENT_LIST_DIR}/install
    -DCMAKE_CXX_COMPILER=${COMPILER} "-DCMAKE_CXX_FLAGS=${FLAGS}")
run("configure" ${configure} -B ${SCRATCH}/build -DCMAKE_PREFIX_PATH=${PREFIX})
run("build" ${CMAKE_COMMAND} --build ${SCRATCH}/build)
run("consumer" ${SCRATCH}/build/consumer)

run("configure with the tree inside" ${configure} -B ${SCRATCH}/build_inside
    -DSHALE_SOURCE_DIR=${ROOT} -DSHALE_CUDA=OFF -DSHALE_EMULATOR=OFF)
run("build with the tree inside" ${CMAKE_COMMAND} --build ${SCRATCH}/build_inside
    --target own_folders own_folders_last)
