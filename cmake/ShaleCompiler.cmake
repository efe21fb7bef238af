# Language level, warnings, optimisation and sanitizers. Also uses ccache and a fast linker, if they
# are found.

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
# Code is position-independent, because static libraries may be linked into a user's shared library.
set(CMAKE_POSITION_INDEPENDENT_CODE ON)

# Newer compilers have new warnings, which must not break a user's build. Warnings are therefore
# errors only with the compiler that runs the tests.
set(werror_default OFF)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION MATCHES "^12[.]")
  set(werror_default ${PROJECT_IS_TOP_LEVEL})
endif()
option(SHALE_WERROR "Treat warnings as errors" ${werror_default})
option(SHALE_CCACHE "Compile through ccache when it is found" ON)
option(SHALE_FAST_LINKER "Link with mold or lld when found" ON)

option(SHALE_THIS_MACHINE "Compile CPU kernels only for this machine's instruction set" OFF)

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Build type" FORCE)
endif()

# The default is -O2; kernels request -O3 themselves. Two options are avoided, because results are
# compared bit by bit between runs, and one binary runs on every x86-64 (SIMD code is selected at
# run time): -ffast-math is never used, and -march=native only for kernels (SHALE_THIS_MACHINE).
set(CMAKE_CXX_FLAGS_RELEASE "-O2 -DNDEBUG")
if(SHALE_THIS_MACHINE)  # compiles faster; kernels keep -O3
  set(CMAKE_CXX_FLAGS_RELEASE "-O1 -DNDEBUG")
endif()
set(CMAKE_CXX_FLAGS_DEBUG "-O0 -g -D_GLIBCXX_ASSERTIONS")
# -O1 keeps sanitized tests fast enough; -g1 suffices for stack traces.
set(CMAKE_CXX_FLAGS_SANITIZE "-O1 -g1 -fno-omit-frame-pointer -D_GLIBCXX_ASSERTIONS")

# -ffp-contract=off: an FMA is used only where the code requests it. Otherwise the bits of results
# would depend on the compiler.
add_compile_options(
  $<$<COMPILE_LANGUAGE:CXX>:-ffp-contract=off> $<$<COMPILE_LANGUAGE:CXX>:-fno-math-errno>)
# -Wmissing-field-initializers is off, because sources name only the members of argument structs
# that they set, and leave all others at their defaults.
foreach(warning IN ITEMS -Wall -Wextra -Wshadow -Wnon-virtual-dtor -Woverloaded-virtual
                         -Wno-missing-field-initializers)
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:${warning}>)
endforeach()
# In code that sanitizers instrument, some of GCC's warnings are wrong.
if(SHALE_WERROR AND NOT SHALE_SANITIZE)
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-Werror>)
endif()

if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # GCC 12 wrongly reports overlapping copies in any "text" + string (GCC bug 105651).
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-Wno-restrict>)
endif()

if(SHALE_SANITIZE)
  add_compile_options(-fsanitize=${SHALE_SANITIZE})
  add_link_options(-fsanitize=${SHALE_SANITIZE})
  if(SHALE_SANITIZE MATCHES "undefined")
    # Without this flag a finding is printed, but the test passes.
    add_compile_options(-fno-sanitize-recover=undefined)
  endif()
endif()

# Uses ccache, unless another compiler launcher is set. ShaleKernels.cmake uses the launcher for
# nvcc too. Paths are relative to the project, so that other clones reuse compiled objects.
if(SHALE_CCACHE)
  find_program(SHALE_CCACHE_PROGRAM ccache)
  mark_as_advanced(SHALE_CCACHE_PROGRAM)
  foreach(language IN ITEMS CXX CUDA)
    if(SHALE_CCACHE_PROGRAM AND NOT CMAKE_${language}_COMPILER_LAUNCHER)
      set(CMAKE_${language}_COMPILER_LAUNCHER
          ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${PROJECT_SOURCE_DIR} CCACHE_NOHASHDIR=1
          CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime
          ${SHALE_CCACHE_PROGRAM})
    endif()
  endforeach()
endif()

# shale_precompile_headers(<target> [<header>...] [FROM <target>])
#
# Precompiles <header>... and the standard headers that most sources include, and includes them in
# every source of the target. With FROM, the target uses the precompiled headers of that other
# target, which must have the same options, and no definitions that <target> lacks. Sanitizer
# presets do not precompile headers, so that a source with a missing #include fails there.
set(SHALE_PRECOMPILED_HEADERS
  <algorithm> <array> <atomic> <chrono> <cmath> <cstddef> <cstdint> <cstdio> <cstdlib> <cstring>
  <exception> <functional> <limits> <map> <memory> <mutex> <numeric> <optional> <set> <span> <string>
  <string_view> <type_traits> <utility> <vector>)
function(shale_precompile_headers target)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "FROM" "")
  if(arg_FROM)
    target_precompile_headers(${target} REUSE_FROM ${arg_FROM})
  else()
    target_precompile_headers(
      ${target} PRIVATE ${SHALE_PRECOMPILED_HEADERS} ${arg_UNPARSED_ARGUMENTS})
  endif()
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # Marks precompiled headers in preprocessed sources, which ccache needs.
    target_compile_options(${target} PRIVATE -fpch-preprocess)
  endif()
endfunction()

if(SHALE_FAST_LINKER)
  include(CheckLinkerFlag)
  check_linker_flag(CXX -fuse-ld=mold SHALE_HAVE_MOLD)
  if(SHALE_HAVE_MOLD)
    add_link_options(-fuse-ld=mold)
  else()
    check_linker_flag(CXX -fuse-ld=lld SHALE_HAVE_LLD)
    if(SHALE_HAVE_LLD)
      add_link_options(-fuse-ld=lld)
    endif()
  endif()
endif()
