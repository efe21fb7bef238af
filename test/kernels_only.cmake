# cmake -DROOT=<tree> -DSCRATCH=<folder> -DCOMPILER=<c++> -DGENERATOR=<name> -P kernels_only.cmake
# Shows that SHALE_KERNELS_ONLY can be configured when CMake finds no library, that the lowest layer
# can then be built, and that its own test runner fails when it should.

set(hidden)
foreach(package IN ITEMS MPI spdlog nlohmann_json tomlplusplus CLI11 oneDNN Highway Catch2 benchmark)
  list(APPEND hidden -DCMAKE_DISABLE_FIND_PACKAGE_${package}=ON)
endforeach()

function(must_run)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE result OUTPUT_VARIABLE output
                  ERROR_VARIABLE output)
  if(NOT result EQUAL 0)
    message(FATAL_ERROR "${ARGN}:\n${output}")
  endif()
endfunction()

file(REMOVE_RECURSE ${SCRATCH})
must_run(${CMAKE_COMMAND} -S ${ROOT} -B ${SCRATCH} -G ${GENERATOR} -DSHALE_KERNELS_ONLY=ON
         -DSHALE_CUDA=OFF -DCMAKE_CXX_COMPILER=${COMPILER} ${hidden})
must_run(${CMAKE_COMMAND} --build ${SCRATCH} --parallel 2 --target shale_base test_runner)

# check(<case> <exit code> <expected output, a regex>...)
function(check name code)
  execute_process(COMMAND ${SCRATCH}/bin/test_runner ${name} RESULT_VARIABLE result
                  OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT result EQUAL code)
    message(SEND_ERROR "test runner, case '${name}': expected to end with ${code}, got ${result}:"
                       "\n${output}")
  endif()
  foreach(expected IN LISTS ARGN)
    if(NOT output MATCHES "${expected}")
      message(SEND_ERROR "test runner, case '${name}': expected '${expected}' in:\n${output}")
    endif()
  endforeach()
endfunction()

check("passes" 0 "1 test cases passed, 0 failed, 0 skipped. 6 assertions")
check("compares" 1 "with: 2 == 3" "value := 2" "went on" "0 test cases passed, 1 failed")
check("requires" 1 "REQUIRE.1 == 2.")
execute_process(COMMAND ${SCRATCH}/bin/test_runner "requires" OUTPUT_VARIABLE output)
if(output MATCHES "went on")
  message(SEND_ERROR "test runner: a case went on after REQUIRE")
endif()
check("throws" 1 "out of order" "nothing was thrown")
check("checks nothing" 1 "it checked nothing")
check("is left out" 0 "no device" "0 failed, 1 skipped")
check("combines" 0 "106x 107y 236x 237y 246x 247y 256x 257y")
check("has types" 0 "size 1 size 2" "2 test cases passed")
check("no such case" 1)
check("[tagged]" 1 "1 test cases passed, 1 failed")
check("[tagged]~[twice],combines" 0 "2 test cases passed, 0 failed")
check("~[#self_test]" 1 "0 test cases passed, 0 failed")
file(REMOVE_RECURSE ${SCRATCH})
