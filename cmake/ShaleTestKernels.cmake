# shale_add_test_kernels(<target>): compiles kernels that tests define. Those in sources of
# test/kernels/simt/engine are only for the emulator; those in .cu files are also for a GPU.
function(shale_add_test_kernels target)
  file(GLOB files CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/test/kernels/simt/engine/*.cpp)
  shale_emulated_sources(${files})
  shale_kernel_files(files hopper_files ${PROJECT_SOURCE_DIR}/test/kernels/simt)
  shale_add_emulated_kernels(${target} ${files} ${hopper_files})
  if(SHALE_HAVE_CUDA)
    shale_add_cuda_kernels(${target} ARCHITECTURES ${SHALE_CUDA_ARCHITECTURES} FILES ${files}
                           FLAGS ${shale_nvcc_flags})
    shale_add_cuda_kernels(${target} ARCHITECTURES ${shale_hopper_architectures}
                           FILES ${hopper_files} FLAGS ${shale_nvcc_flags})
    target_compile_definitions(${target} PRIVATE SHALE_HAVE_CUDA
      $<$<BOOL:${SHALE_NVRTC_INCLUDE_DIR}>:SHALE_HAVE_NVRTC>)
    target_link_libraries(${target} PRIVATE shale_kernels_cuda ${shale_cudart})
  endif()
endfunction()

# shale_add_gpu_tests(<target> <stem>...): adds a test gpu.<stem> for each file, which runs the
# file's kernel cases on this machine's GPU. Only `ctest -C gpu -R "^gpu[.]"` runs these tests.
function(shale_add_gpu_tests target)
  foreach(stem IN LISTS ARGN)
    if(SHALE_HAVE_CUDA AND NOT stem MATCHES "^simt_")
      add_test(NAME gpu.${stem} CONFIGURATIONS gpu
        COMMAND ${target} --filenames-as-tags "[#${stem}]~[emulator]")
      set_tests_properties(gpu.${stem} PROPERTIES
        TIMEOUT 1800 ENVIRONMENT SHALE_TEST_GPU=cuda)
    endif()
  endforeach()
endfunction()
