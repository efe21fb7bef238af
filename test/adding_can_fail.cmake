# cmake -DSCRATCH=<folder> -P adding_can_fail.cmake: shows on small trees that the check of
# docs/contributing/adding.md finds errors, at the right line, and accepts correct pages.

include(${CMAKE_CURRENT_LIST_DIR}/expect.cmake)

# check(<what> <expected output, a regex, or OK> <text of a list>)
# The tree has an op `norm`, whose names are in ops/norm.h and nn/layers.h.
function(check what expected list)
  file(REMOVE_RECURSE ${SCRATCH})
  file(WRITE ${SCRATCH}/ops/norm.h "Tensor norm(const Tensor& x);\n")
  file(WRITE ${SCRATCH}/ops/matrix.h "Shape normal(const Shape& x);\n")
  file(WRITE ${SCRATCH}/nn/layers.h "// calls norm(x)\n")
  file(WRITE ${SCRATCH}/docs/contributing/adding.md "# Adding\n\n## An op\n\n${list}")
  expect("${what}" "${expected}" -DROOT=${SCRATCH} -P ${CMAKE_CURRENT_LIST_DIR}/adding.cmake)
  file(REMOVE_RECURSE ${SCRATCH})
endfunction()

set(example "Example: x = `norm`; `git grep -lwE 'norm|Norm' ops nn`.\n\n")
set(list "1. `ops/x.h`: it [does];\n   what it does.\n2. `nn/layers.h`: a layer.\n")
check("a recipe that is as the tree is" OK "${example}${list}")
check("a file that the recipe lacks" "adding.md:5: nn/layers.h says norm.*does not have it"
  "${example}1. `ops/x.h`: the op.\n")
check("a file that says nothing of it"
  "adding.md:5: the recipe has ops/matrix.h, which does not say"
  "${example}${list}3. `ops/matrix.h`: helpers.\n")
check("a path that is not there" "adding.md:8: there is no file ops/norm.cpp"
  "${example}1. `ops/x.h`: the op.\n2. `ops/x.cpp`: its body.\n3. `nn/layers.h`: a layer.\n")
check("numbers out of order" "adding.md:8: the item has number 3, expected 2"
  "${example}1. `ops/x.h`: the op.\n3. `nn/layers.h`: a layer.\n")
check("an item without a path" "adding.md:7: expected a path in backticks" "${example}1. The op.\n")
check("an example without a command" "adding.md:5: expected values of x"
  "Example: x = `norm`.\n\n${list}")
check("a recipe without a list" "adding.md:5: the recipe has no list" "${example}")
check("a page without recipes" "nothing was checked" "Text.\n")
