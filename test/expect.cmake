# Runs a CMake script, for tests that show that other checks can fail.

# expect(<what> <expected output, a regex, or OK> <argument of cmake>...)
# Runs cmake with these arguments: it must pass, or fail with the expected output.
function(expect what expected)
  execute_process(
    COMMAND ${CMAKE_COMMAND} ${ARGN}
    RESULT_VARIABLE result
    OUTPUT_VARIABLE output
    ERROR_VARIABLE output)
  if(expected STREQUAL "OK")
    if(NOT result EQUAL 0)
      message(SEND_ERROR "${what}: expected to pass, got:\n${output}")
    endif()
  elseif(result EQUAL 0 OR NOT output MATCHES "${expected}")
    message(SEND_ERROR "${what}: expected to fail with '${expected}', got ${result}:\n${output}")
  endif()
endfunction()
