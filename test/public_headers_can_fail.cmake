# cmake -DROOT=<tree> -DAWK=<awk> -DSCRATCH=<folder> -P public_headers_can_fail.cmake: shows on
# copies of the tree's headers that their check finds errors.

include(${CMAKE_CURRENT_LIST_DIR}/expect.cmake)

# check(<what> <expected output, a regex, or OK> <header> <text added to it>)
function(check what expected header text)
  file(REMOVE_RECURSE ${SCRATCH})
  file(COPY ${ROOT}/include ${ROOT}/base ${ROOT}/kernels ${ROOT}/runtime ${ROOT}/comm ${ROOT}/models
       DESTINATION ${SCRATCH} FILES_MATCHING PATTERN "*.h")
  file(APPEND ${SCRATCH}/${header} "${text}")
  expect("${what}" "${expected}" -DROOT=${SCRATCH} -DAWK=${AWK}
         -P ${CMAKE_CURRENT_LIST_DIR}/public_headers.cmake)
  file(REMOVE_RECURSE ${SCRATCH})
endfunction()

set(header runtime/nn/init.h)
check("the tree as it is" OK ${header} "")
check("a function without a word" "runtime/nn/init.h:[0-9]+: no comment .*: int unexplained"
  ${header} "\nint unexplained();\n")
check("a function of several lines without a word" "init.h:[0-9]+: no comment .*: int unexplained"
  ${header} "\nint unexplained(int first,\n                int second);\n")
check("a class without a word" "init.h:[0-9]+: no comment .*: class Unexplained"
  ${header} "\nclass Unexplained {\n public:\n  int x();  // explained\n};\n")
check("a template without a word" "init.h:[0-9]+: no comment .*: struct Unexplained"
  ${header} "\ntemplate <typename T>\nstruct Unexplained {\n};\n")
check("words above and for a group" OK ${header} "\n// Is explained.\nint a();\nint b();\n")
check("words behind, and none needed" OK ${header} "\nint c();  // is explained\n\nclass Elsewhere;\n")
check("a header that is not on the list" "include/shale has" include/shale/more.h "#pragma once\n")
check("an internal header" "public headers need the internal comm/mpi_internal.h"
  comm/mesh.h "#include \"shale/comm/mpi_internal.h\"\n")
