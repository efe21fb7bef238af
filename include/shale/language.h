#pragma once

// Language models: their families and presets, training them as a task, generating text.

#include "shale/models/language/config.h"
#include "shale/models/language/family.h"
#include "shale/models/language/generate.h"
#include "shale/models/language/model.h"
#include "shale/models/language/task.h"
