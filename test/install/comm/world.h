#pragma once

struct OwnWorld {};
