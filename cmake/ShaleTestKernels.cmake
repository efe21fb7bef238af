# shale_add_test_kernels(<target>): compiles the kernels that tests bring along. Those in
# test/kernels/simt_*.cpp are for the emulator, those in .cu files for a GPU too, in sm90/ for Hopper
# alone.
function(shale_add_test_kernels target)
  file(GLOB files CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/test/kernels/simt_*.cpp)
  shale_emulated_sources(${files})
  file(GLOB files CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR}
       ${PROJECT_SOURCE_DIR}/test/kernels/*.cu)
  file(GLOB hopper_files CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR}
       ${PROJECT_SOURCE_DIR}/test/kernels/sm90/*.cu)
  shale_add_emulated_kernels(${target} ${files} ${hopper_files})
  if(SHALE_HAVE_CUDA)
    shale_add_cuda_kernels(${target} ARCHITECTURES ${SHALE_CUDA_ARCHITECTURES} FILES ${files})
    shale_add_cuda_kernels(${target} ARCHITECTURES 90a-real FILES ${hopper_files})
    target_compile_definitions(${target} PRIVATE SHALE_HAVE_CUDA)
    target_link_libraries(${target} PRIVATE shale_kernels_cuda CUDA::cudart_static)
  endif()
endfunction()
