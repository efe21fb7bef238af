#pragma once

struct OwnTensor {};
