# Finds the CUDA toolkit with CMake's own module of this name, and works around an error in one of
# its versions.
#
# CMake 3.25 marks the target CUDA::nvToolsExt as deprecated without testing whether it exists, if a
# project's minimum version is 3.25. Toolkits since CUDA 13 have no such library, so configuring
# would stop. With a lower minimum version, the module does not mark the target; nothing else
# changes.

set(shale_minimum_version ${CMAKE_MINIMUM_REQUIRED_VERSION})
set(CMAKE_MINIMUM_REQUIRED_VERSION 3.24)
include(${CMAKE_ROOT}/Modules/FindCUDAToolkit.cmake)
set(CMAKE_MINIMUM_REQUIRED_VERSION ${shale_minimum_version})
unset(shale_minimum_version)
