# Builds the CUDA kernels: adds the library shale_kernels_cuda and sets SHALE_HAVE_CUDA. Programs
# must start on machines without CUDA's toolkit and driver. CUDA's runtime library is therefore
# linked statically; with SHALE_SHARED it is copied to the build folder and installed. ptxas's
# report on each kernel is in cuda/shale_kernels_cuda/<file>.ptxas, which a test reads.

# Values: `auto`, `all` (ShaleCudaArchitectures.cmake), or names as for CMAKE_CUDA_ARCHITECTURES. If
# all names end with -virtual (90-virtual), only PTX is built. It is not compressed, for tools that
# read or run it.
set(SHALE_CUDA_ARCHITECTURES auto CACHE STRING "GPUs to compile the CUDA kernels for")
set(SHALE_CUDART_LIBRARY "" CACHE FILEPATH
    "A library that takes the place of CUDA's static runtime library, such as one that records calls")

set(SHALE_HAVE_CUDA FALSE)
if(SHALE_CUDA STREQUAL "AUTO" AND SHALE_SANITIZE)
  message(STATUS "Not building the CUDA kernels: SHALE_SANITIZE is on")
  return()
endif()
if(SHALE_CUDA STREQUAL "OFF")
  return()
endif()

# 12.1 is the first version with PTX ISA 8.1, which Hopper's GEMMs need for st.async.
find_package(CUDAToolkit 12.1 QUIET)
if(NOT CUDAToolkit_FOUND OR NOT CUDAToolkit_NVCC_EXECUTABLE)
  if(SHALE_CUDA STREQUAL "ON")
    message(FATAL_ERROR "SHALE_CUDA=ON: found no CUDA toolkit of version 12.1 or later with nvcc")
  endif()
  message(STATUS "Not building the CUDA kernels: no CUDA toolkit of version 12.1 or later")
  return()
endif()
include(ShaleCudaArchitectures)
shale_gpus_here(gpus)
shale_cuda_architectures(SHALE_CUDA_ARCHITECTURES ${CUDAToolkit_NVCC_EXECUTABLE} "${gpus}"
  ${SHALE_CUDA_ARCHITECTURES})
message(STATUS "Building the CUDA kernels with ${CUDAToolkit_NVCC_EXECUTABLE} ${CUDAToolkit_VERSION}"
               " for ${SHALE_CUDA_ARCHITECTURES}")
set(SHALE_HAVE_CUDA TRUE)

set(shale_cudart CUDA::cudart_static)
if(SHALE_CUDART_LIBRARY)
  set(shale_cudart ${SHALE_CUDART_LIBRARY})
elseif(SHALE_SHARED)
  # Both shared libraries need the same CUDA runtime. It is copied, because the other libraries in
  # its folder must not get onto the search path of programs.
  get_target_property(file CUDA::cudart IMPORTED_LOCATION)
  file(COPY ${file} DESTINATION ${PROJECT_BINARY_DIR}/lib FOLLOW_SYMLINK_CHAIN)
  cmake_path(GET file FILENAME name)
  add_library(shale_cuda_headers INTERFACE)
  target_include_directories(shale_cuda_headers SYSTEM INTERFACE ${CUDAToolkit_INCLUDE_DIRS})
  set(shale_cudart ${PROJECT_BINARY_DIR}/lib/${name} shale_cuda_headers)
endif()
set(SHALE_NVCC ${CUDAToolkit_NVCC_EXECUTABLE} CACHE INTERNAL "Compiles the CUDA kernels")
shale_hopper_architectures(shale_hopper_architectures ${SHALE_CUDA_ARCHITECTURES})
set(SHALE_HAVE_MACHINE_CODE TRUE)
if(shale_hopper_architectures MATCHES "-virtual$")
  set(SHALE_HAVE_MACHINE_CODE FALSE)
endif()

set(shale_nvcc_flags)
if(SHALE_WERROR)
  list(APPEND shale_nvcc_flags -Werror=all-warnings -Xcompiler=-Werror)
endif()

# Only the headers of these libraries are needed here: the libraries are loaded at first use.
set(folders ${SHALE_cuda_FOLDERS})
find_path(SHALE_CUBLASLT_INCLUDE_DIR cublasLt.h HINTS ${CUDAToolkit_INCLUDE_DIRS} NO_DEFAULT_PATH)
if(SHALE_CUBLASLT_INCLUDE_DIR)
  list(APPEND folders ${SHALE_cublaslt_FOLDERS})
  list(APPEND shale_nvcc_flags -DSHALE_HAVE_CUBLASLT)
else()
  message(STATUS "Building without cuBLASLt: the CUDA toolkit has no cublasLt.h")
endif()
find_path(SHALE_NVRTC_INCLUDE_DIR nvrtc.h HINTS ${CUDAToolkit_INCLUDE_DIRS} NO_DEFAULT_PATH)
if(SHALE_NVRTC_INCLUDE_DIR)
  list(APPEND folders ${SHALE_nvrtc_FOLDERS})
  list(APPEND shale_nvcc_flags -DSHALE_HAVE_NVRTC)
else()
  message(STATUS "Building without NVRTC: the CUDA toolkit has no nvrtc.h; GPUs interpret fused chains")
endif()

shale_add_layer(kernels_cuda
  FOLDERS ${folders}
  PUBLIC shale_kernels
  PRIVATE ${shale_cudart} ${CMAKE_DL_LIBS})
# Sources are not united, because they use the same names in unnamed namespaces.
set_target_properties(shale_kernels_cuda PROPERTIES UNITY_BUILD OFF)
if(SHALE_NVRTC_INCLUDE_DIR)
  include(ShaleNvrtc)
  shale_add_nvrtc_texts(shale_kernels_cuda)
endif()

shale_kernel_files(kernel_files hopper_files ${SHALE_cuda_kernel_FOLDERS})
shale_add_cuda_kernels(shale_kernels_cuda
  ARCHITECTURES ${SHALE_CUDA_ARCHITECTURES} FILES ${kernel_files} FLAGS ${shale_nvcc_flags})
shale_add_cuda_kernels(shale_kernels_cuda
  ARCHITECTURES ${shale_hopper_architectures} FILES ${hopper_files} FLAGS ${shale_nvcc_flags})
