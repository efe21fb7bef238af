# Finds the CUDA toolkit with CMake's own module of this name, and works around an error in one
# version of it.
#
# CMake 3.25 marks CUDA::nvToolsExt as deprecated where a project's minimum version is 3.25, without
# testing whether this target exists. Toolkits since CUDA 13 have no such library, and configuring
# stops. With a lower minimum version the module does not mark the target, and does nothing else
# differently.

set(shale_minimum_version ${CMAKE_MINIMUM_REQUIRED_VERSION})
set(CMAKE_MINIMUM_REQUIRED_VERSION 3.24)
include(${CMAKE_ROOT}/Modules/FindCUDAToolkit.cmake)
set(CMAKE_MINIMUM_REQUIRED_VERSION ${shale_minimum_version})
unset(shale_minimum_version)
