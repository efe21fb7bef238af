# Makes packages for Debian, by `cpack` in the build folder: shale (programs, shared libraries),
# libshale-dev (headers, the CMake package, static libraries if any), python3-shale. dpkg-shlibdeps
# finds the dependencies: the libraries that the programs link.

include(GNUInstallDirs)
set(SHALE_COMPONENTS runtime dev python)
set(SHALE_PACKAGES shale libshale-dev python3-shale)

# Debian's policy requires copyright and change log in every package (sections 12.5 and 12.7).
find_program(SHALE_GZIP_PROGRAM gzip)
mark_as_advanced(SHALE_GZIP_PROGRAM)
set(package_files ${PROJECT_BINARY_DIR}/package)
file(MAKE_DIRECTORY ${package_files})
file(READ ${PROJECT_SOURCE_DIR}/LICENSE license)
file(CONFIGURE OUTPUT ${package_files}/copyright
  CONTENT "Upstream-Name: ${PROJECT_NAME}\n\n${license}" @ONLY)
set(release 1)
if(SHALE_GZIP_PROGRAM)
  configure_file(${PROJECT_SOURCE_DIR}/CHANGELOG.md ${package_files}/changelog COPYONLY)
  execute_process(COMMAND ${SHALE_GZIP_PROGRAM} -9nkf ${package_files}/changelog
                  COMMAND_ERROR_IS_FATAL ANY)
endif()
foreach(component package IN ZIP_LISTS SHALE_COMPONENTS SHALE_PACKAGES)
  install(FILES ${package_files}/copyright
          DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/${package} COMPONENT ${component})
  if(SHALE_GZIP_PROGRAM)
    install(FILES ${package_files}/changelog.gz
            DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/${package} COMPONENT ${component})
  endif()
endforeach()
install(DIRECTORY ${PROJECT_SOURCE_DIR}/bindings/python/shale
  DESTINATION lib/python3/dist-packages COMPONENT python FILES_MATCHING PATTERN "*.py")

# cpack packs what is already built, and does not build again.
set(CMAKE_SKIP_INSTALL_ALL_DEPENDENCY ON)

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME shale)
set(CPACK_PACKAGE_VENDOR "The Shale authors")
# The contact of a package is the person who makes it. The default's domain (RFC 2606) shows that
# nobody is named yet.
set(SHALE_PACKAGE_CONTACT "Nobody yet <nobody@shale.invalid>" CACHE STRING
    "Maintainer of Debian packages, as \"NAME <ADDRESS>\"")
set(CPACK_PACKAGE_CONTACT "${SHALE_PACKAGE_CONTACT}")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "${PROJECT_DESCRIPTION}")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_COMPONENTS_ALL ${SHALE_COMPONENTS})
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_COMPONENTS_GROUPING IGNORE)
# Dpkg of Debian 12 reads zstd; compressing with xz takes minutes.
set(CPACK_DEBIAN_COMPRESSION_TYPE zstd)

set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_RELEASE ${release})
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_PRIORITY optional)

set(CPACK_DEBIAN_RUNTIME_PACKAGE_NAME shale)
set(CPACK_DEBIAN_RUNTIME_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_RUNTIME_PACKAGE_GENERATE_SHLIBS ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${PROJECT_BINARY_DIR}/lib)
set(CPACK_DEBIAN_RUNTIME_PACKAGE_RECOMMENDS "openmpi-bin")
set(CPACK_DEBIAN_RUNTIME_DESCRIPTION "${PROJECT_DESCRIPTION}
Programs that train language models over several ranks, tools, and the
library of the C interface.")

# libshale-dev requires shale of the same version. Programs that link the static libraries also link
# the libraries that these use.
set(same_version "shale (= ${PROJECT_VERSION}-${release})")
set(CPACK_DEBIAN_DEV_PACKAGE_NAME libshale-dev)
set(CPACK_DEBIAN_DEV_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_DEV_PACKAGE_SHLIBDEPS OFF)
set(CPACK_DEBIAN_DEV_PACKAGE_DEPENDS "${same_version}")
if(NOT SHALE_SHARED)
  string(APPEND CPACK_DEBIAN_DEV_PACKAGE_DEPENDS ", libopenmpi-dev, libdnnl-dev, libspdlog-dev, \
libhwy-dev, zlib1g-dev, libzstd-dev, libpng-dev, libjpeg-dev")
endif()
set(CPACK_DEBIAN_DEV_PACKAGE_RECOMMENDS "cmake (>= 3.25), g++, pkg-config")
set(CPACK_DEBIAN_DEV_DESCRIPTION "${PROJECT_DESCRIPTION}, for programs in C and C++
Headers, a CMake package and a file of pkg-config.")

set(CPACK_DEBIAN_PYTHON_PACKAGE_NAME python3-shale)
set(CPACK_DEBIAN_PYTHON_PACKAGE_SECTION python)
set(CPACK_DEBIAN_PYTHON_PACKAGE_SHLIBDEPS OFF)
set(CPACK_DEBIAN_PYTHON_PACKAGE_DEPENDS "${same_version}, python3 (>= 3.9)")
set(CPACK_DEBIAN_PYTHON_PACKAGE_SUGGESTS "python3-numpy")
set(CPACK_DEBIAN_PYTHON_DESCRIPTION "${PROJECT_DESCRIPTION}, from Python
A module over the C interface.")
include(CPack)
