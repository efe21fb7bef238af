#pragma once

#include <string>

#include "shale/comm/parallel/pipeline/simulate.h"

namespace shale::comm {

// A simulated step as a picture (SVG): a row for each rank, time to the right, a box for each action
// with the number of its micro-batch. Forwards are blue, backwards green (of inputs) and orange (of
// weights, and of both), the second chunk of a rank darker.
std::string timeline_svg(const Simulation& simulation);

}  // namespace shale::comm
