#pragma once

namespace shale::models {

// How often a job fails, and what that costs. In seconds.
struct FailureModel {
  double between_failures_s = 0;  // on average, of the whole job; they come at any time alike
  double save_s = 0;              // that training waits for a save
  double write_s = 0;    // until it is on the disk, beside training; it is lost before that
  double restart_s = 0;  // from a failure to the first step again
};

// What is left of the time.
struct Goodput {
  double interval_s = 0;  // of training, between two saves
  double share = 0;       // of the time that makes steps which are not lost again, in [0, 1]
};

// The share for saves after each `interval_s` of training: J. Daly, "A higher order estimate of the
// optimum checkpoint interval for restart dumps" (2006), equation 20, without its approximations.
// With M between failures, saves of C and restarts of R, of which writing W delays the first save
// that counts,
//
//     share = tau / (M exp((R + W) / M) (exp((tau + C) / M) - 1))
//
// Throws ConfigError unless all are finite, M and tau above 0 and the rest not below it.
Goodput goodput(const FailureModel& model, double interval_s);

// The interval of the largest share: where tau / M = 1 - exp(-(tau + C) / M). J. Young's sqrt(2 C
// M)
// ("A first order approximation to the optimum checkpoint interval", 1974) is close where C is far
// below M. Throws ConfigError as goodput(), and for saves that take no time, which should never
// end.
Goodput best_goodput(const FailureModel& model);

}  // namespace shale::models
