#pragma once

#include <nvrtc.h>

namespace shale::kernels::cuda::nvrtc {

// The functions of NVIDIA's compiler library: loaded when first asked for, never linked, so that
// programs start without it. Each has the type that the library's header gives it.
struct Library {
  decltype(&::nvrtcGetErrorString) get_error_string;
  decltype(&::nvrtcCreateProgram) create_program;
  decltype(&::nvrtcDestroyProgram) destroy_program;
  decltype(&::nvrtcCompileProgram) compile_program;
  decltype(&::nvrtcGetPTXSize) get_ptx_size;
  decltype(&::nvrtcGetPTX) get_ptx;
  decltype(&::nvrtcGetProgramLogSize) get_log_size;
  decltype(&::nvrtcGetProgramLog) get_log;
};

// Throws UnavailableError that says what was tried. SHALE_NVRTC in the environment names another
// file to load.
const Library& library();

// Whether SHALE_NVRTC is "off": programs are then interpreted, as somebody wished.
bool switched_off();

}  // namespace shale::kernels::cuda::nvrtc
