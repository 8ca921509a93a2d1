// A norm as Python holds it.
#pragma once

#include <string>
#include <vector>

#include "checks.hpp"

namespace cenote {

// A norm's parameters, copied so that a call passes one object instead of five arguments.
class Norm {
 public:
  Norm(const std::string& kind, Address weight, Address bias, int64_t size, float eps)
      : weight_(pointer<float>(weight), pointer<float>(weight) + size) {
    require(kind == "layer" || kind == "rms", "norm kind must be layer or rms");
    if (bias) bias_.assign(pointer<float>(bias), pointer<float>(bias) + size);
    args_.kind = kind == "layer" ? NormKind::layer : NormKind::rms;
    args_.weight = weight_.data();
    args_.bias = bias ? bias_.data() : nullptr;
    args_.eps = eps;
  }
  Norm(const Norm&) = delete;
  Norm& operator=(const Norm&) = delete;

  int64_t size() const { return static_cast<int64_t>(weight_.size()); }
  const NormArgs& args() const { return args_; }

 private:
  std::vector<float> weight_, bias_;
  NormArgs args_;
};

inline const NormArgs* args_of(const Norm* norm, int64_t size) {
  if (!norm) return nullptr;
  require(norm->size() == size, "a norm's size doesn't fit the rows it is applied to");
  return &norm->args();
}

}  // namespace cenote
