# cmake -DPREFIX=<where Shale is installed> -DCOMPILER=<c++> -DSCRATCH=<folder>
#       -DMPI_INCLUDE=<folders> [-DTOGETHER=ON] -P public_headers_compile.cmake
# Compiles the installed public headers with warnings as errors. Each header is compiled alone. With
# TOGETHER, for a compiler that is used only for its warnings, all are compiled together.

include(${CMAKE_CURRENT_LIST_DIR}/run.cmake)
include(${CMAKE_CURRENT_LIST_DIR}/../cmake/ShalePublicHeaders.cmake)
set(flags -std=c++20 -fsyntax-only -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Werror
    -I${PREFIX}/include)

# Ignores warnings in the headers of other libraries.
set(mpi_flags -DOMPI_SKIP_MPICXX -DMPICH_SKIP_MPICXX)
foreach(folder IN LISTS MPI_INCLUDE)
  list(APPEND mpi_flags -isystem ${folder})
endforeach()
# "#pragma unroll" is for nvcc; shale_add_kernels() ignores it too.
set(simt_flags -Wno-unknown-pragmas)

# compile(<what> <text> <flag>...)
function(compile what text)
  file(WRITE ${SCRATCH}/alone.cpp "${text}")
  run("${COMPILER}: ${what}" ${COMPILER} ${flags} ${ARGN} ${SCRATCH}/alone.cpp)
endfunction()

set(together)
foreach(name IN LISTS SHALE_PUBLIC_HEADERS SHALE_SIMT_HEADERS)
  set(text "#include <shale/${name}>\n")
  if(name IN_LIST SHALE_SIMT_HEADERS)
    compile(${name} "${text}" ${simt_flags})
  elseif(TOGETHER)
    string(APPEND together "${text}")
  elseif(name IN_LIST SHALE_MPI_HEADERS)
    compile(${name} "${text}" ${mpi_flags})
  else()
    compile(${name} "${text}")
  endif()
endforeach()
# Compiles each header as C and as C++.
foreach(name IN LISTS SHALE_C_HEADERS)
  compile(${name} "#include <shale/${name}>\n")
  set(text "#include <shale/${name}>\nint main(void) { return shale_api_version(); }\n")
  file(WRITE ${SCRATCH}/alone.c "${text}")
  run("${COMPILER}: ${name} as C11" ${COMPILER} -x c -std=c11 -fsyntax-only -Wall -Wextra
      -Wpedantic -Wshadow -Wconversion -Werror -I${PREFIX}/include ${SCRATCH}/alone.c)
endforeach()
if(TOGETHER)
  compile("all public headers" "${together}" ${mpi_flags})
endif()

# A header with a warning must fail.
file(WRITE ${SCRATCH}/alone.cpp "#include <shale/base.h>\ninline int f(int unused) { return 0; }\n")
execute_process(COMMAND ${COMPILER} ${flags} ${SCRATCH}/alone.cpp
                RESULT_VARIABLE result OUTPUT_QUIET ERROR_QUIET)
if(result EQUAL 0)
  message(FATAL_ERROR "${COMPILER}: expected a warning to be an error")
endif()
