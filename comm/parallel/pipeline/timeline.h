#pragma once

#include <string>

#include "shale/comm/parallel/pipeline/simulate.h"

namespace shale::comm {

// Draws a simulated step (SVG): a row for each rank, time to the right, a box for each action with
// its micro-batch number. Forwards are blue, backwards of inputs green, backwards of weights or of
// both orange; a rank's second chunk is darker.
std::string timeline_svg(const Simulation& simulation);

}  // namespace shale::comm
