#pragma once

namespace shale::models {

// Failure rate of a job and the costs of failures and checkpoints, in seconds.
struct FailureModel {
  double between_failures_s = 0;  // mean time between failures of the job, a Poisson process
  double save_s = 0;              // time that training is blocked by a save
  double write_s = 0;  // time of the background write, after which a restart can use the save
  double restart_s = 0;           // time from a failure until training continues
};

// Fraction of the time that remains useful.
struct Goodput {
  double interval_s = 0;  // training time between two saves
  double share = 0;       // fraction of the time for steps that no failure undoes, 0 to 1
};

// Returns the useful fraction of the time with a save after every tau = `interval_s` seconds of
// training: J. Daly, "A higher order estimate of the optimum checkpoint interval for restart dumps"
// (2006), equation 20, without its approximations. Let M be the mean time between failures, C the
// duration of a save, R of a restart, and W of the background write, which delays the first save
// that counts.
//
// share = tau / (M exp((R + W) / M) (exp((tau + C) / M) - 1))
//
// Throws ConfigError unless all are finite, M and tau are positive, and C, R and W are at least 0.
Goodput goodput(const FailureModel& model, double interval_s);

// Returns the interval tau with the largest share, which is the root of tau / M = 1 - exp(-(tau +
// C) / M). J. Young's sqrt(2 C M) ("A first order approximation to the optimum checkpoint
// interval", 1974) is close to it if C is far below M. Throws ConfigError as goodput() does, and if
// saves take no time, because the best interval would be 0.
Goodput best_goodput(const FailureModel& model);

}  // namespace shale::models
