#pragma once

#include <dnnl.hpp>

#include "shale/base/dtype.h"

// Helper functions for calls of oneDNN.
namespace shale::bench {

const dnnl::engine& onednn_engine();
dnnl::memory::data_type onednn_type(DType dtype);  // throws UnavailableError for other dtypes

// Makes a memory object. oneDNN's memory objects hold non-const pointers, but oneDNN only reads its
// sources.
inline dnnl::memory onednn_memory(const dnnl::memory::desc& desc, const void* data) {
  return {desc, onednn_engine(), const_cast<void*>(data)};
}

}  // namespace shale::bench
