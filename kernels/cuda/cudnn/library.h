#pragma once

#include <string>

#include "shale/kernels/cuda/cudnn/abi.h"

namespace shale::kernels::cudnn {

// The functions of cuDNN 9, loaded when first asked for, never linked.
struct Library {
  size_t (*get_version)() = nullptr;
  const char* (*get_error_string)(Status status) = nullptr;
  Status (*create)(Handle* handle) = nullptr;
  Status (*set_stream)(Handle handle, void* stream) = nullptr;
  Status (*create_descriptor)(DescriptorType type, Descriptor* descriptor) = nullptr;
  Status (*destroy_descriptor)(Descriptor descriptor) = nullptr;
  Status (*finalize)(Descriptor descriptor) = nullptr;
  Status (*set_attribute)(Descriptor descriptor, Attribute name, AttributeType type, int64_t count,
                          const void* elements) = nullptr;
  Status (*get_attribute)(Descriptor descriptor, Attribute name, AttributeType type,
                          int64_t requested, int64_t* count, void* elements) = nullptr;
  Status (*execute)(Handle handle, Descriptor plan, Descriptor variant_pack) = nullptr;
};

// Whether SHALE_CUDNN in the environment names a library: then nothing but it will do.
bool is_asked_for();

// Null where there is none, which the log then says, once, or SHALE_CUDNN is "off". Throws
// UnavailableError where is_asked_for() and it cannot be loaded.
const Library* library();

// "9.10.2"; empty where there is none.
std::string version();

}  // namespace shale::kernels::cudnn
