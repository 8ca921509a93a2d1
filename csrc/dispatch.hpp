// What the bindings ask of the dispatcher, besides `kernels()`.
#pragma once

#include <string>
#include <vector>

#include "kernels.hpp"

namespace cenote {

const char* isa_name();

// One line per level: in use, usable, or why not.
std::string isa_report();

// Levels that can be used here, best first.
std::vector<std::string> isa_levels();

// Selects a level by name; throws std::invalid_argument if it isn't built or can't run here.
void set_isa(const std::string& name);

}  // namespace cenote
