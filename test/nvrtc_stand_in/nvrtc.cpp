// A libnvrtc that returns the given options as machine code. It refuses compute capability 12.0, as
// NVRTC does before 12.8. It is built in several versions.
#include <nvrtc.h>

#include <cstring>
#include <string>

struct _nvrtcProgram {
  std::string code;
};

extern "C" {

const char* nvrtcGetErrorString(nvrtcResult result) {
  return result == NVRTC_SUCCESS ? "NVRTC_SUCCESS" : "NVRTC_ERROR_INVALID_OPTION";
}
nvrtcResult nvrtcCreateProgram(nvrtcProgram* program, const char*, const char*, int,
                               const char* const*, const char* const*) {
  *program = new _nvrtcProgram;
  return NVRTC_SUCCESS;
}
nvrtcResult nvrtcDestroyProgram(nvrtcProgram* program) {
  delete *program;
  return NVRTC_SUCCESS;
}
nvrtcResult nvrtcCompileProgram(nvrtcProgram program, int count, const char* const* options) {
  program->code = STAND_IN_VERSION;
  for (int i = 0; i < count; ++i) program->code += std::string(" ") + options[i];
  const bool known = program->code.find("_120") == std::string::npos;
  return known ? NVRTC_SUCCESS : NVRTC_ERROR_INVALID_OPTION;
}
nvrtcResult nvrtcGetCUBINSize(nvrtcProgram program, size_t* bytes) {
  *bytes = program->code.size() + 1;
  return NVRTC_SUCCESS;
}
nvrtcResult nvrtcGetCUBIN(nvrtcProgram program, char* code) {
  std::strcpy(code, program->code.c_str());
  return NVRTC_SUCCESS;
}
nvrtcResult nvrtcGetProgramLogSize(nvrtcProgram, size_t* bytes) {
  *bytes = 1;
  return NVRTC_SUCCESS;
}
nvrtcResult nvrtcGetProgramLog(nvrtcProgram, char* log) {
  *log = '\0';
  return NVRTC_SUCCESS;
}

}  // extern "C"
