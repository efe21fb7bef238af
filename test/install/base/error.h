#pragma once

// A header of the consumer's own, where Shale has one of the same path.
struct OwnError {};
