# SHALE_KERNELS_ONLY is for GPU machines that lack Shale's libraries: MPI, oneDNN, Highway, spdlog,
# JSON, TOML, Catch2. It builds the GPU kernels (for CUDA and for the emulator), their tests and
# bench_kernels, and needs only a host compiler and nvcc. The layers keep their names, but have only
# the sources needed. The CPU kernels, which need oneDNN and Highway, are left out. Tests that need
# them are skipped by name.

find_package(Threads REQUIRED)
find_package(OpenMP REQUIRED COMPONENTS CXX)

include(ShaleLayers)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin)

shale_add_layer(base
  FOLDERS ${SHALE_base_FOLDERS} ${SHALE_bare_FOLDERS}
  EXCLUDE base/log.cpp base/config_json.cpp base/json.cpp
  PUBLIC Threads::Threads)
target_compile_definitions(shale_base PRIVATE SHALE_VERSION="${PROJECT_VERSION}")

shale_add_layer(kernels FOLDERS kernels kernels/cuda/cudnn
  PUBLIC shale_base PRIVATE OpenMP::OpenMP_CXX ${CMAKE_DL_LIBS})
# The emulator uses this file to run thread blocks in parallel.
target_sources(shale_kernels PRIVATE kernels/cpu/parallel.cpp)

include(ShaleEmulator)
include(ShaleCuda)
set(gpu_kernels shale_kernels_emu)
set(definitions)
if(SHALE_HAVE_CUDA)
  list(APPEND gpu_kernels shale_kernels_cuda ${shale_cudart})
  set(definitions SHALE_HAVE_CUDA)
endif()

# Of the runtime layer, only devices and atomic writing of files are needed.
set(sources device_backend device_cpu device_emu)
if(SHALE_HAVE_CUDA)
  list(APPEND sources device_cuda upload_ring)
endif()
list(TRANSFORM sources REPLACE "(.+)" "runtime/tensor/\\1.cpp")
add_library(shale_runtime STATIC ${sources} runtime/io/atomic_file.cpp
  runtime/io/file.cpp)
target_link_libraries(shale_runtime PUBLIC shale_kernels PRIVATE ${gpu_kernels})
target_compile_definitions(shale_runtime PRIVATE ${definitions})

if(SHALE_BUILD_BENCH)
  set(sources bench_device bench_device_emu bench_devices buffer cases_ffn foreign gemm_tuner json_text
              kernel_cases machine measure peaks program table timing)
  list(TRANSFORM sources REPLACE "(.+)" "bench/support/\\1.cpp")
  file(GLOB cases CONFIGURE_DEPENDS runtime/kernel_check/cases_*.cpp)
  foreach(name IN ITEMS fill kernel_device matmul_spec operands plain_operands)
    list(APPEND cases runtime/kernel_check/${name}.cpp)
  endforeach()
  if(SHALE_HAVE_CUDA)
    file(GLOB cuda_sources CONFIGURE_DEPENDS bench/support/*_cuda.cpp)
  endif()
  add_executable(bench_kernels bench/kernels.cpp ${sources} ${cases} ${cuda_sources})
  target_link_libraries(bench_kernels PRIVATE shale_runtime ${gpu_kernels} OpenMP::OpenMP_CXX)
  target_compile_definitions(bench_kernels PRIVATE ${definitions}
    $<$<BOOL:${SHALE_CUBLASLT_INCLUDE_DIR}>:SHALE_HAVE_CUBLASLT>)
endif()

if(SHALE_BUILD_TESTS)
  enable_testing()
  # The folder test/kernels/cpu is left out, because it tests the CPU kernels.
  file(GLOB sources CONFIGURE_DEPENDS
       test/kernels/*.cpp test/kernels/simt/*.cpp test/kernels/simt/engine/*.cpp)
  file(GLOB references CONFIGURE_DEPENDS test/support/ref_*.cpp)
  add_executable(test_kernels
    ${sources} ${references} test/support/bare/main.cpp test/support/emulator.cpp
    test/support/fixtures.cpp test/support/kernels.cpp test/support/numbers.cpp)
  target_include_directories(test_kernels SYSTEM PRIVATE test/support/bare)
  target_link_libraries(test_kernels PRIVATE shale_runtime shale_kernels_emu)
  target_compile_definitions(test_kernels PRIVATE
    SHALE_TEST_FIXTURES="${PROJECT_SOURCE_DIR}/test/fixtures")
  shale_add_test_kernels(test_kernels)
  add_executable(test_runner EXCLUDE_FROM_ALL
    test/support/bare/main.cpp test/support/bare/self_test.cpp)
  target_include_directories(test_runner SYSTEM PRIVATE test/support/bare)
  add_test(NAME kernels COMMAND test_kernels)
  list(TRANSFORM sources REPLACE ".*/(.*)[.]cpp" "\\1" OUTPUT_VARIABLE stems)
  shale_add_gpu_tests(test_kernels ${stems})
endif()
