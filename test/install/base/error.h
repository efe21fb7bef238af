#pragma once

// A consumer's header with the path of one of Shale's.
struct OwnError {};
