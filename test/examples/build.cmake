# cmake -DSOURCE=<examples> -DPREFIX=<where Shale is installed> -DSCRATCH=<folder>
# -DGENERATOR=<name>
#       -DCOMPILER=<c++> [-DFLAGS=<compiler flags>] -P build.cmake
# Builds the examples against the installed package. Warnings are errors, even in the package's
# headers, which are not included as system headers.

include(${CMAKE_CURRENT_LIST_DIR}/../run.cmake)

file(REMOVE_RECURSE ${SCRATCH})
run("configure" ${CMAKE_COMMAND} -G ${GENERATOR} -S ${SOURCE} -B ${SCRATCH}
    -DCMAKE_PREFIX_PATH=${PREFIX} -DCMAKE_CXX_COMPILER=${COMPILER} -DCMAKE_BUILD_TYPE=Release
    -DCMAKE_NO_SYSTEM_FROM_IMPORTED=ON
    "-DCMAKE_C_FLAGS=${FLAGS} -Wall -Wextra -pedantic -Werror"
    "-DCMAKE_CXX_FLAGS=${FLAGS} -Wall -Wextra -Werror -DOMPI_SKIP_MPICXX -DMPICH_SKIP_MPICXX")
run("build" ${CMAKE_COMMAND} --build ${SCRATCH} --parallel 2)
