# Headers, static libraries and a CMake package: find_package(Shale) gives shale::shale.

include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/Shale)

list(TRANSFORM SHALE_LAYERS PREPEND shale_ OUTPUT_VARIABLE layers)
if(SHALE_EMULATOR)
  list(APPEND layers shale_kernels_emu)
endif()
if(SHALE_HAVE_CUDA)
  list(APPEND layers shale_kernels_cuda)
endif()
target_include_directories(shale_base INTERFACE
  $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)

install(TARGETS shale ${layers} EXPORT ShaleTargets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(EXPORT ShaleTargets NAMESPACE shale:: DESTINATION ${package_dir})

list(TRANSFORM SHALE_LAYERS APPEND "/*.h" OUTPUT_VARIABLE headers)
file(GLOB_RECURSE headers CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR} ${headers})
list(FILTER headers EXCLUDE REGEX "${SHALE_INTERNAL_HEADERS}")
foreach(header IN LISTS headers)
  cmake_path(GET header PARENT_PATH folder)
  install(FILES ${header} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/shale/${folder})
endforeach()

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
