#pragma once

struct OwnGemm {};
