#pragma once

#include "kernels/elementwise.h"
#include "kernels/simt/backend.h"

// What the registry fills the slots with; each is documented at its slot.
namespace shale::kernels::SHALE_BACKEND {

void axpby(const Exec& exec, const AxpbyArgs& args);

}  // namespace shale::kernels::SHALE_BACKEND
