#pragma once

struct OwnGpt2 {};
