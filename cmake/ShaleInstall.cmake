# Installs headers, libraries and a CMake package: find_package(Shale) defines shale::shale and
# shale::cpu.

include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(CMAKE_INSTALL_DEFAULT_COMPONENT_NAME dev)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/Shale)

list(TRANSFORM SHALE_LAYERS PREPEND shale_ OUTPUT_VARIABLE layers)
list(APPEND layers shale_vision shale_views shale_planning)
if(SHALE_EMULATOR)
  list(APPEND layers shale_kernels_emu)
endif()
if(SHALE_HAVE_CUDA)
  list(APPEND layers shale_kernels_cuda)
endif()
target_include_directories(shale_base INTERFACE
  $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)

set(SHALE_PARTS)  # targets that the package defines for the parts of the shared library
if(SHALE_SHARED)
  list(TRANSFORM layers REPLACE "^shale_" "shale::" OUTPUT_VARIABLE SHALE_PARTS)
  set(layers)
endif()
if(TARGET shale_cpu)
  list(APPEND layers shale_cpu)
endif()
install(TARGETS shale ${layers} EXPORT ShaleTargets
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT runtime NAMELINK_COMPONENT dev)
if(TARGET shale_cuda)
  install(TARGETS shale_cuda LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT runtime)
  file(GLOB cudart ${PROJECT_BINARY_DIR}/lib/libcudart.so.*)
  install(FILES ${cudart} DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT runtime)
endif()
install(EXPORT ShaleTargets NAMESPACE shale:: DESTINATION ${package_dir})

install(CODE "set(shale_root ${PROJECT_SOURCE_DIR})
  set(shale_staging ${PROJECT_BINARY_DIR}/installed_headers)
  set(shale_include_dir ${CMAKE_INSTALL_INCLUDEDIR})" COMPONENT dev)
install(SCRIPT ${CMAKE_CURRENT_LIST_DIR}/InstallHeaders.cmake COMPONENT dev)

configure_package_config_file(
  ${CMAKE_CURRENT_LIST_DIR}/ShaleConfig.cmake.in ${PROJECT_BINARY_DIR}/ShaleConfig.cmake
  INSTALL_DESTINATION ${package_dir} PATH_VARS CMAKE_INSTALL_INCLUDEDIR)
write_basic_package_version_file(
  ${PROJECT_BINARY_DIR}/ShaleConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(
  FILES ${PROJECT_BINARY_DIR}/ShaleConfig.cmake ${PROJECT_BINARY_DIR}/ShaleConfigVersion.cmake
        ${CMAKE_CURRENT_LIST_DIR}/ShaleKernels.cmake ${CMAKE_CURRENT_LIST_DIR}/RunNvcc.cmake
        ${PROJECT_SOURCE_DIR}/third_party/FindCUDAToolkit.cmake
        ${PROJECT_SOURCE_DIR}/third_party/FindoneDNN.cmake
        ${PROJECT_SOURCE_DIR}/third_party/FindHighway.cmake
        ${PROJECT_SOURCE_DIR}/third_party/FindZstd.cmake
  DESTINATION ${package_dir})
