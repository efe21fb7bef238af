#pragma once

#include <string>

#include "shale/kernels/cuda/cudnn/abi.h"

namespace shale::kernels::cudnn {

// The functions of cuDNN 9. The library is loaded at first use, never linked.
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

// Returns whether SHALE_CUDNN names a library, which is then required.
bool is_asked_for();

// Returns the library; null if there is none, which is logged once, or if SHALE_CUDNN is "off".
// Throws UnavailableError if is_asked_for() and the library cannot be loaded.
const Library* library();

// Returns the version, such as "9.10.2"; empty without a library.
std::string version();

}  // namespace shale::kernels::cudnn
