# Defines two targets: `shale_code`, which Shale's programs link, and shale::shale, which embedding
# projects link.
#
# With SHALE_SHARED, programs share libshale.so, and a run on GPUs loads CUDA's kernels from
# libshale_cuda.so. There is thus one copy of the kernels, which are most of the installed bytes.
# Without it, each program contains the code that it uses.

if(NOT SHALE_SHARED)
  set(shale_code shale_models)
  add_library(shale INTERFACE)
  target_link_libraries(shale INTERFACE shale_planning shale_views shale_vision shale_models)
else()
  set(shale_code shale)
  list(TRANSFORM SHALE_LAYERS PREPEND shale_ OUTPUT_VARIABLE whole)
  list(APPEND whole shale_vision shale_views shale_planning)
  if(SHALE_EMULATOR)
    list(APPEND whole shale_kernels_emu)
  endif()
  set(sources ${PROJECT_BINARY_DIR}/precompiled.cpp)  # CMake requires a source; this one is empty
  if(SHALE_HAVE_CUDA)
    # User kernels call functions in these files.
    file(GLOB sources CONFIGURE_DEPENDS kernels/simt/cuda/*.cpp)
    list(APPEND sources kernels/cuda/loader/loader.cpp)
  endif()
  add_library(shale SHARED ${sources})
  list(JOIN whole "," names)
  set_target_properties(shale PROPERTIES
    LINK_LIBRARY_OVERRIDE "WHOLE_ARCHIVE,${names}"
    VERSION ${PROJECT_VERSION}
    SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR}
    BUILD_RPATH $ORIGIN
    LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/lib)
  target_compile_features(shale PUBLIC cxx_std_20)
  target_link_libraries(shale PUBLIC Threads::Threads
    # The archives that these depend on are linked too.
    PRIVATE shale_planning shale_views shale_vision
            ${shale_cudart} ${CMAKE_DL_LIBS})
  target_link_options(shale PRIVATE -Wl,-Bsymbolic-functions ${shale_rpath})
  if(SHALE_HAVE_CUDA)
    # libshale.so is linked before the archives, so that the kernels call its functions and not
    # copies of them.
    add_library(shale_cuda MODULE kernels/cuda/loader/library.cpp)
    set_target_properties(shale_cuda PROPERTIES
      LINK_LIBRARY_OVERRIDE "WHOLE_ARCHIVE,shale_kernels_cuda"
      LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/lib)
    target_link_libraries(shale_cuda PRIVATE shale shale_kernels_cuda)
    target_link_options(shale_cuda PRIVATE -Wl,-Bsymbolic-functions ${shale_rpath})
  endif()
endif()
add_library(shale::shale ALIAS shale)
target_include_directories(shale INTERFACE
  $<BUILD_INTERFACE:${shale_include_dir}> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)

# Programs without CUDA link shale::cpu. It does not exist for static libraries with CUDA.
if(SHALE_SHARED OR NOT SHALE_HAVE_CUDA)
  add_library(shale_cpu INTERFACE)
  add_library(shale::cpu ALIAS shale_cpu)
  set_target_properties(shale_cpu PROPERTIES EXPORT_NAME cpu)
  target_link_libraries(shale_cpu INTERFACE shale)
endif()
