#pragma once

#include <nvrtc.h>

namespace shale::kernels::cuda::nvrtc {

// The functions of NVRTC. The library is loaded at first use and never linked, so that programs
// start without it. Types come from the library's header.
struct Library {
  decltype(&::nvrtcGetErrorString) get_error_string;
  decltype(&::nvrtcCreateProgram) create_program;
  decltype(&::nvrtcDestroyProgram) destroy_program;
  decltype(&::nvrtcCompileProgram) compile_program;
  decltype(&::nvrtcGetCUBINSize) get_cubin_size;
  decltype(&::nvrtcGetCUBIN) get_cubin;
  decltype(&::nvrtcGetProgramLogSize) get_log_size;
  decltype(&::nvrtcGetProgramLog) get_log;
};

// Returns the library: that of the CUDA version of this build, if there is one. Throws
// UnavailableError, which says what was tried. SHALE_NVRTC in the environment names another file to
// load.
const Library& library();

// Returns whether SHALE_NVRTC is "off": programs are then interpreted.
bool switched_off();

}  // namespace shale::kernels::cuda::nvrtc
