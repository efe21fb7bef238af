# Finds the CUDA toolkit with CMake's own module of this name, and mends one version of it.
#
# CMake 3.25 marks CUDA::nvToolsExt as deprecated where a project's minimum version is 3.25, without
# asking whether there is such a target; toolkits since CUDA 13 have no library for it, and
# configuring stops. With a lower minimum it leaves that out, and does nothing else differently.

set(shale_minimum_version ${CMAKE_MINIMUM_REQUIRED_VERSION})
set(CMAKE_MINIMUM_REQUIRED_VERSION 3.24)
include(${CMAKE_ROOT}/Modules/FindCUDAToolkit.cmake)
set(CMAKE_MINIMUM_REQUIRED_VERSION ${shale_minimum_version})
unset(shale_minimum_version)
