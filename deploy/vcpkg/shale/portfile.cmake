# vcpkg port of the source tree that contains this file. It has not been tried.
get_filename_component(SOURCE_PATH "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)

vcpkg_cmake_configure(
  SOURCE_PATH "${SOURCE_PATH}"
  OPTIONS -DSHALE_BUILD_TESTS=OFF -DSHALE_BUILD_BENCH=OFF -DSHALE_CUDA=OFF -DSHALE_EMULATOR=OFF)
vcpkg_cmake_install()
vcpkg_cmake_config_fixup(PACKAGE_NAME Shale CONFIG_PATH lib/cmake/Shale)
file(REMOVE_RECURSE "${CURRENT_PACKAGES_DIR}/debug/include")
vcpkg_install_copyright(FILE_LIST "${SOURCE_PATH}/LICENSE")
