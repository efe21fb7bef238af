# Finds Catch2, version 2 or 3, and gives both one interface: the header is <catch2/catch.hpp>.
#
#   Catch2Any::Catch2Any  for test sources; brings no main()
#   Catch2Any::Main       the same, with a main()
#
# A program with its own main() includes <catch2_any/run.h> and returns catch2_any::run(argc, argv),
# which fails in both versions if no test case ran. Catch2 version 2 is compiled here, once: a
# distribution's library of it is built as C++14 and lacks symbols that a C++20 test refers to.

find_package(Catch2 CONFIG QUIET)

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(
  Catch2Any
  REQUIRED_VARS Catch2_DIR
  VERSION_VAR Catch2_VERSION)

if(Catch2Any_FOUND AND NOT TARGET Catch2Any::Catch2Any)
  set(generated ${CMAKE_CURRENT_BINARY_DIR}/catch2_any)
  file(CONFIGURE OUTPUT ${generated}/include/catch2_any/run.h @ONLY CONTENT [[
#pragma once

namespace catch2_any {

// Runs the test cases that the command line selects. Returns what main() should return: not zero
// after a failure, and when no test case ran.
int run(int argc, char** argv);

}  // namespace catch2_any
]])
  file(CONFIGURE OUTPUT ${generated}/main.cpp @ONLY CONTENT [[
#include <catch2_any/run.h>

int main(int argc, char** argv) { return catch2_any::run(argc, argv); }
]])

  if(Catch2_VERSION VERSION_LESS 3)
    file(CONFIGURE OUTPUT ${generated}/run.cpp @ONLY CONTENT [[
#define CATCH_CONFIG_RUNNER
#include <catch2/catch.hpp>

#include <catch2_any/run.h>

int catch2_any::run(int argc, char** argv) {
  Catch::Session session;
  if (const int error = session.applyCommandLine(argc, argv); error != 0) return error;
  session.configData().warnings = static_cast<Catch::WarnAbout::What>(
      session.configData().warnings | Catch::WarnAbout::NoTests);
  return session.run();
}
]])
  else()
    # Version 3 itself fails if no test case ran.
    file(CONFIGURE OUTPUT ${generated}/include/catch2/catch.hpp @ONLY CONTENT [[
#pragma once

#include <catch2/catch_all.hpp>

using Catch::Approx;
]])
    file(CONFIGURE OUTPUT ${generated}/run.cpp @ONLY CONTENT [[
#include <catch2/catch_session.hpp>

#include <catch2_any/run.h>

int catch2_any::run(int argc, char** argv) { return Catch::Session().run(argc, argv); }
]])
  endif()

  add_library(catch2_any STATIC ${generated}/run.cpp)
  target_include_directories(catch2_any SYSTEM PUBLIC ${generated}/include)
  target_link_libraries(catch2_any PUBLIC Catch2::Catch2)
  # Version 2 has 18,000 lines; its warnings cannot be fixed here, and its speed does not matter to
  # tests.
  target_compile_options(catch2_any PRIVATE -w -O0 -g0 -fno-sanitize=all)
  add_library(Catch2Any::Catch2Any ALIAS catch2_any)

  add_library(catch2_any_main STATIC ${generated}/main.cpp)
  target_link_libraries(catch2_any_main PUBLIC catch2_any)
  add_library(Catch2Any::Main ALIAS catch2_any_main)
endif()
