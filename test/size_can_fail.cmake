# cmake -DAWK=<awk> -DSCRATCH=<folder> -P size_can_fail.cmake: shows that the check of sizes finds
# errors.

include(${CMAKE_CURRENT_LIST_DIR}/expect.cmake)

file(REMOVE_RECURSE ${SCRATCH})
file(WRITE ${SCRATCH}/base/a.cpp "#include <slow.h>\n\nint a;\n")
file(WRITE ${SCRATCH}/base/b/b.h "#include <slow.h>\n")
# check(<what> <expected output, a regex, or OK> <row>)
function(check what expected row)
  file(WRITE ${SCRATCH}/test/size.txt "# a comment\n${row}\n")
  expect("${what}" "${expected}" -DROOT=${SCRATCH} -DAWK=${AWK}
         -P ${CMAKE_CURRENT_LIST_DIR}/size.cmake)
endfunction()

check("as many lines as expected" OK "lines base 4")
check("too many lines" "lines base: expected at most 3, found 4" "lines base 3")
check("far fewer lines" "base has 4 lines, far below its row" "lines base 605")
check("as many includes as expected" OK "includes slow.h 2 base")
check("too many includes" "includes slow.h: expected at most 1, found 2" "includes slow.h 1 base")
check("too many includes in headers" "headers slow.h: expected at most 0, found 1"
  "headers slow.h 0 base")
