# cmake -DROOT=<tree> -DSCRATCH=<folder> -P examples_can_fail.cmake: shows on copies that the check
# of examples/ finds errors.

include(${CMAKE_CURRENT_LIST_DIR}/expect.cmake)

# check(<what> <expected output, a regex, or OK> <file> <regex> <replacement>)
function(check what expected file regex replacement)
  file(REMOVE_RECURSE ${SCRATCH})
  file(COPY ${ROOT}/examples ${ROOT}/README.md ${ROOT}/docs DESTINATION ${SCRATCH})
  file(READ ${SCRATCH}/${file} text)
  string(REGEX REPLACE "${regex}" "${replacement}" text "${text}")
  file(WRITE ${SCRATCH}/${file} "${text}")
  expect("${what}" "${expected}" -DROOT=${SCRATCH} -P ${CMAKE_CURRENT_LIST_DIR}/examples.cmake)
  file(REMOVE_RECURSE ${SCRATCH})
endfunction()

check("the tree as it is" OK README.md "none" "none")
check("another program" "README.md's program is not that of" README.md "step < [0-9]+" "step < 7")
check("a folder without a row" "examples/README.md: no link to 02_mlp"
  examples/README.md "02_mlp/main" "02_mlp/other")
check("a folder that is not built" "examples/CMakeLists.txt: no 05_kernel"
  examples/CMakeLists.txt "05_kernel" "05_other")
check("code of a page that is in no example" "embedding.md: code that is in no example"
  docs/tutorials/embedding.md "lr=3e-3" "lr=3e-4")
check("a program that does not say how to run it" "01_tensors/main.cpp does not begin with"
  examples/01_tensors/main.cpp "// Run:" "//")
