# The CUDA kernels: SHALE_HAVE_CUDA, and then the library shale_kernels_cuda.
#
# nvcc is called by hand and its objects go into an ordinary static library. With the language CUDA
# enabled instead, the library would carry that language, and every project that links Shale would
# have to enable it too. The runtime library is static, so programs start on machines without driver.
#
# What ptxas says of each kernel (registers, shared memory, stack, spills) stays next to its object,
# in cuda/<library>/<file>.ptxas; a test reads it.

# Machine code for A100 and H100; for later GPUs the driver compiles the PTX. Names as for
# CMAKE_CUDA_ARCHITECTURES. With none but -virtual ones (90-virtual) there is only PTX, and that is
# not compressed: for tools that read or run it.
set(SHALE_CUDA_ARCHITECTURES 80-real 90-real 80-virtual
    CACHE STRING "GPUs to compile the CUDA kernels for")
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

# 12.0 is the first with C++20.
find_package(CUDAToolkit 12.0 QUIET)
if(NOT CUDAToolkit_FOUND OR NOT CUDAToolkit_NVCC_EXECUTABLE)
  if(SHALE_CUDA STREQUAL "ON")
    message(FATAL_ERROR "SHALE_CUDA=ON: found no CUDA toolkit of version 12.0 or later with nvcc")
  endif()
  message(STATUS "Not building the CUDA kernels: no CUDA toolkit of version 12.0 or later")
  return()
endif()
message(STATUS "Building the CUDA kernels with ${CUDAToolkit_NVCC_EXECUTABLE} ${CUDAToolkit_VERSION}"
               " for ${SHALE_CUDA_ARCHITECTURES}")
set(SHALE_HAVE_CUDA TRUE)

set(shale_cudart CUDA::cudart_static)
if(SHALE_CUDART_LIBRARY)
  set(shale_cudart ${SHALE_CUDART_LIBRARY})
endif()
# Hopper's own instructions exist for 90a alone, and code for 90a runs on nothing else.
set(shale_hopper_architectures 90a-real)
set(SHALE_HAVE_MACHINE_CODE TRUE)
set(architectures ${SHALE_CUDA_ARCHITECTURES})
list(FILTER architectures EXCLUDE REGEX "-virtual$")
if(NOT architectures)
  set(shale_hopper_architectures 90a-virtual)
  set(SHALE_HAVE_MACHINE_CODE FALSE)
endif()

set(shale_nvcc_flags
  -std=c++20 -O3
  -lineinfo                 # profilers and compute-sanitizer name source lines; costs no speed
  --expt-relaxed-constexpr  # constexpr functions of shared headers, such as bf16's, on the device
  -fmad=false               # as on the CPU: an FMA appears only where the code says so
  -Xptxas=-v
  -ccbin=${CMAKE_CXX_COMPILER}
  -Xcompiler=-fPIC,-Wall,-Wextra,-ffp-contract=off)
if(NOT SHALE_HAVE_MACHINE_CODE)
  list(APPEND shale_nvcc_flags --no-compress)
endif()
if(SHALE_WERROR)
  list(APPEND shale_nvcc_flags -Werror=all-warnings -Xcompiler=-Werror)
endif()

# shale_gencode(<out> <architecture>...): nvcc's flags for architectures such as 90a-real.
function(shale_gencode out)
  set(flags)
  foreach(architecture IN LISTS ARGN)
    if(NOT architecture MATCHES "^([0-9]+[af]?)(-real|-virtual)?$")
      message(FATAL_ERROR "CUDA architecture '${architecture}': expected one such as 90, 90-real, "
                          "90a-real or 80-virtual")
    endif()
    set(number ${CMAKE_MATCH_1})
    set(kind "${CMAKE_MATCH_2}")
    if(NOT kind STREQUAL "-virtual")
      list(APPEND flags -gencode=arch=compute_${number},code=sm_${number})
    endif()
    if(NOT kind STREQUAL "-real")
      list(APPEND flags -gencode=arch=compute_${number},code=compute_${number})
    endif()
  endforeach()
  set(${out} ${flags} PARENT_SCOPE)
endfunction()

# shale_add_cuda_kernels(<target> ARCHITECTURES ... FILES ...): adds the objects of these .cu files,
# compiled for these architectures, to the library. No two may have the same name.
function(shale_add_cuda_kernels target)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "ARCHITECTURES;FILES")
  shale_gencode(gencode ${arg_ARCHITECTURES})
  set(folder ${PROJECT_BINARY_DIR}/cuda/${target})
  file(MAKE_DIRECTORY ${folder})
  foreach(file IN LISTS arg_FILES)
    cmake_path(GET file STEM stem)
    set(object ${folder}/${stem}.o)
    set(report ${folder}/${stem}.ptxas)
    add_custom_command(
      OUTPUT ${object} ${report}
      COMMAND ${CMAKE_COMMAND} -DREPORT=${report} -P ${PROJECT_SOURCE_DIR}/cmake/RunNvcc.cmake --
              ${CMAKE_CUDA_COMPILER_LAUNCHER} ${CUDAToolkit_NVCC_EXECUTABLE}
              ${shale_nvcc_flags} ${gencode} -I${shale_include_dir} -MD -MF ${object}.d
              -c ${PROJECT_SOURCE_DIR}/${file} -o ${object}
      DEPENDS ${PROJECT_SOURCE_DIR}/${file} ${PROJECT_SOURCE_DIR}/cmake/RunNvcc.cmake
      DEPFILE ${object}.d
      COMMENT "Building CUDA object ${file}"
      VERBATIM)
    target_sources(${target} PRIVATE ${object})
    set_source_files_properties(${object} PROPERTIES EXTERNAL_OBJECT TRUE GENERATED TRUE)
  endforeach()
endfunction()

# Only its header is needed here: the library itself is loaded when it is first asked for.
set(folders ${SHALE_cuda_FOLDERS})
find_path(SHALE_CUBLASLT_INCLUDE_DIR cublasLt.h HINTS ${CUDAToolkit_INCLUDE_DIRS} NO_DEFAULT_PATH)
if(SHALE_CUBLASLT_INCLUDE_DIR)
  list(APPEND folders ${SHALE_cublaslt_FOLDERS})
  list(APPEND shale_nvcc_flags -DSHALE_HAVE_CUBLASLT)
else()
  message(STATUS "Building without cuBLASLt: the CUDA toolkit has no cublasLt.h")
endif()

shale_add_layer(kernels_cuda
  FOLDERS ${folders}
  PUBLIC shale_kernels
  PRIVATE ${shale_cudart} ${CMAKE_DL_LIBS})

shale_kernel_files(kernel_files hopper_files ${SHALE_cuda_kernel_FOLDERS})
shale_add_cuda_kernels(shale_kernels_cuda
  ARCHITECTURES ${SHALE_CUDA_ARCHITECTURES} FILES ${kernel_files})
shale_add_cuda_kernels(shale_kernels_cuda
  ARCHITECTURES ${shale_hopper_architectures} FILES ${hopper_files})
