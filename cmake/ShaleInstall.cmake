# Headers, static libraries and a CMake package: find_package(Shale) gives shale::shale.

include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/Shale)

# Users write <shale/runtime/...>; our headers write "runtime/...". Hence two roots.
set(layers shale_base shale_kernels shale_runtime shale_comm shale_models)
if(SHALE_EMULATOR)
  list(APPEND layers shale_kernels_emu)
endif()
if(SHALE_HAVE_CUDA)
  list(APPEND layers shale_kernels_cuda)
endif()
target_include_directories(shale_base INTERFACE
  $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>
  $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}/shale>)

install(TARGETS shale ${layers} EXPORT ShaleTargets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(EXPORT ShaleTargets NAMESPACE shale:: DESTINATION ${package_dir})

# Internal headers stay out: they may include third-party headers, which no user should need.
# test/layering.cmake has the same list.
install(
  DIRECTORY runtime kernels comm models
  DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/shale
  FILES_MATCHING
  PATTERN "*.h"
  PATTERN "kernels/cpu" EXCLUDE
  PATTERN "kernels/cuda" EXCLUDE
  PATTERN "kernels/simt" EXCLUDE
  PATTERN "models/tools" EXCLUDE
  PATTERN "*_internal.h" EXCLUDE
  PATTERN "*-inl.h" EXCLUDE)

configure_package_config_file(
  ${CMAKE_CURRENT_LIST_DIR}/ShaleConfig.cmake.in ${PROJECT_BINARY_DIR}/ShaleConfig.cmake
  INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(
  ${PROJECT_BINARY_DIR}/ShaleConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(
  FILES ${PROJECT_BINARY_DIR}/ShaleConfig.cmake ${PROJECT_BINARY_DIR}/ShaleConfigVersion.cmake
        ${PROJECT_SOURCE_DIR}/third_party/FindCUDAToolkit.cmake
        ${PROJECT_SOURCE_DIR}/third_party/FindoneDNN.cmake
        ${PROJECT_SOURCE_DIR}/third_party/FindHighway.cmake
  DESTINATION ${package_dir})
