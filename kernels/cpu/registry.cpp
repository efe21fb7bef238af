#include "shale/kernels/registry.h"

#include <mutex>
#include <tuple>

#include "shale/kernels/cpu/run.h"
#include "shale/kernels/slots.h"

namespace shale::kernels {
namespace {

void fill_slots() {
  std::apply([](auto&... slots) { (slots.set(DeviceType::kCpu, cpu::run), ...); }, all_slots());
}

}  // namespace

void register_cpu_kernels() {
  static std::once_flag once;
  std::call_once(once, fill_slots);
}

}  // namespace shale::kernels
