// The smallest program that uses CPUs. A test measures its size.
#include <shale/tensor.h>

#include <vector>

int main() {
  shale::Context context({.threads = 1});
  const std::vector<float> values = {1, 2, 3};
  return shale::to_host<float>(shale::from_host<float>(context, values, {3})) == values ? 0 : 1;
}
