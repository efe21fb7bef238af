# Builds the CUDA kernels for the emulator, which runs them on the CPU.

if(SHALE_SANITIZE MATCHES "thread")
  message(FATAL_ERROR "SHALE_EMULATOR=ON is incompatible with SHALE_SANITIZE=thread: "
    "ThreadSanitizer does not know the emulator's fibers, and the emulator's race tracker replaces "
    "ThreadSanitizer's functions; set SHALE_EMULATOR=OFF")
endif()

shale_add_layer(kernels_emu
  FOLDERS ${SHALE_emulator_FOLDERS}
  PUBLIC shale_kernels
  PRIVATE ${CMAKE_DL_LIBS})
shale_kernel_files(kernel_files hopper_files ${SHALE_cuda_kernel_FOLDERS})
shale_add_emulated_kernels(shale_kernels_emu ${kernel_files} ${hopper_files})
# Tests run the emulated kernels for hours, so the kernels are optimised. Their checks remain on.
target_compile_options(shale_kernels_emu PRIVATE $<$<CONFIG:Release>:-O3>)
