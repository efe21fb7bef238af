# cmake -DSCRATCH=<folder> -P commits_can_fail.cmake: shows that the check of commit messages finds
# errors.

include(${CMAKE_CURRENT_LIST_DIR}/expect.cmake)

# check(<what> <expected output, a regex, or OK> <message>)
function(check what expected message)
  file(WRITE ${SCRATCH}/message "${message}")
  expect("${what}" "${expected}" -DMESSAGE=${SCRATCH}/message
         -P ${CMAKE_CURRENT_LIST_DIR}/commits.cmake)
endfunction()

string(REPEAT "x" 73 long)
check("a subject" OK "Add a test")
check("a subject and a body" OK "Add a test\n\nIt finds; what [it] should.\n# a comment of git's\n")
check("characters that CMake knows" OK "Write \\u00XX and \${x}\n\nA path: \\tmp\\x\n")
check("a long subject" "the subject has 75 characters" "A ${long}")
check("a small letter" "capital letter" "add a test")
check("a full stop" "full stop" "Add a test.")
check("unfinished work" "unfinished work" "WIP: add a test")
check("unfinished work, for later" "unfinished work" "Squash the wip")
check("a word that looks like it" OK "Swipe through images")
check("a commit to be merged into another" "capital letter.*unfinished" "fixup! Add a test")
check("no empty line" "expected an empty line" "Add a test\nIt finds what it should.\n")
