# cmake -DSCRATCH=<folder> -P walk_can_fail.cmake: shows on small trees that the check of the walk
# finds errors, and accepts correct walks.

include(${CMAKE_CURRENT_LIST_DIR}/expect.cmake)

# check(<what> <expected output, a regex, or OK> <step 2 of the walk> [<a step before the last>])
function(check what expected second)
  file(REMOVE_RECURSE ${SCRATCH})
  file(WRITE ${SCRATCH}/models/train_lm.cpp "Trainer trainer;\n")
  file(WRITE ${SCRATCH}/models/trainer.h "class Trainer { Tensor norm(); };\n")
  file(WRITE ${SCRATCH}/models/trainer.cpp "Tensor y = layer_norm_fwd(x);\n")
  file(WRITE ${SCRATCH}/kernels/cpu/norm.cpp "void layer_norm_fwd() {}\n")
  file(WRITE ${SCRATCH}/docs/explanation/architecture.md "# Architecture

## A batch, from a program to a kernel

1. [models/train_lm.cpp](../../models/train_lm.cpp) makes a
   `Trainer`.
${second}
${ARGV3}
9. [kernels/cpu/norm.cpp](../../kernels/cpu/norm.cpp) computes; [more](../../models/trainer.h).

Text behind it.

## Another
")
  expect("${what}" "${expected}" -DROOT=${SCRATCH} -P ${CMAKE_CURRENT_LIST_DIR}/walk.cmake)
  file(REMOVE_RECURSE ${SCRATCH})
endfunction()

set(step "2. [trainer.cpp](../../models/trainer.cpp) calls\n   the `layer_norm_fwd` of [x](../../x.cpp).")
check("names that lead on, one through a header" OK "${step}")
check("a name that the next file has not"
  "step 2: nothing of 'layer_norm' is in models/trainer.cpp and kernels/cpu/norm.cpp"
  "2. [trainer.cpp](../../models/trainer.cpp) calls `layer_norm`.")
check("a step that leads nowhere" "step 1: nothing of 'Trainer' is in models/train_lm.cpp and x.cpp"
  "2. [x.cpp](../../x.cpp) has gone.")
check("a walk that begins elsewhere" "the walk has 1 files, expected 2 to 12" "\n## Next\n")
string(REPEAT "\n3. [trainer.cpp](../../models/trainer.cpp): `layer_norm_fwd`." 11 many)
check("a walk that is too long" "the walk has 14 files, expected 2 to 12" "${step}" "${many}")
