# cmake -DSCRATCH=<folder> -P links_can_fail.cmake: shows on small trees that the check of links
# finds errors, at the right line, and accepts correct links.

include(${CMAKE_CURRENT_LIST_DIR}/expect.cmake)

# check(<what> <expected output, a regex, or OK> <text of docs/page.md> [<text of docs/README.md> [<text of README.md>]])
function(check what expected text)
  set(index "[A page](page.md)\n")
  set(readme "[Pages](docs/README.md)\n")
  if(ARGC GREATER 3)
    set(index "${ARGV3}")
  endif()
  if(ARGC GREATER 4)
    set(readme "${ARGV4}")
  endif()
  file(REMOVE_RECURSE ${SCRATCH})
  file(WRITE ${SCRATCH}/README.md "# Name\n\n${readme}\n## One; two [three](base)\n\n## Two\n## Two\n")
  file(WRITE ${SCRATCH}/docs/README.md "# Pages\n\n${index}")
  file(WRITE ${SCRATCH}/base/error.h "\n")
  file(WRITE ${SCRATCH}/docs/page.md "# Page\n\n${text}")
  expect("${what}" "${expected}" -DROOT=${SCRATCH} -P ${CMAKE_CURRENT_LIST_DIR}/links.cmake)
  file(REMOVE_RECURSE ${SCRATCH})
endfunction()

check("links to files, folders, headings and elsewhere" OK
  "[a](../base/error.h), [b](../base), ![c](../README.md#name) [d](#page)\n[`e`](https://x.org/y)\n")
check("headings with signs, with links, with one name"
  OK "[a](../README.md#one-two-three) [b](../README.md#two) [c](../README.md#two-1)\n")
check("links in code" OK "`[a](b)`\n\n```\n[a](b)\n```\n\n    [a](b)\n")
check("a file that is not there" "docs/page.md:4: there is no base/errors.h"
  "Text.\n[a](../base/error.h) and [b](../base/errors.h)\n")
check("a file beside the page" "docs/page.md:3: there is no docs/other.md" "[a](other.md)\n")
check("a link behind code" "docs/page.md:7: there is no docs/b" "```\nx\n```\n\n[a](b)\n")
check("a heading that is not there" "docs/page.md:3: README.md has no heading #three"
  "[a](../README.md#three)\n")
check("a heading of the page itself" "docs/page.md:3: docs/page.md has no heading #pages"
  "[a](#pages)\n")
check("an anchor in a source" "docs/page.md:3: an anchor in base/error.h, which is no page"
  "[a](../base/error.h#L3)\n")
check("a target outside the tree" "docs/page.md:3: the target ../x.md lies outside the tree"
  "[a](../../x.md)\n")
check("a target at a root" "docs/page.md:3: the target /base begins at a root" "[a](/base)\n")
check("a page that docs/README.md does not link to" "docs/README.md: no link to docs/page.md"
  "Text.\n" "[a](../base/error.h)\n")
check("pages that README.md does not link to" "README.md: no link to docs/README.md"
  "Text.\n" "[A page](page.md)\n" "[a](base/error.h)\n")
