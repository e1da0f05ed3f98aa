// SPDX-License-Identifier: Apache-2.0
// All other operators: each is queued on the current stream, and runs there on the CPU.
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <ATen/ops/empty_strided.h>
#include <torch/library.h>

#include <functional>
#include <memory>
#include <vector>

#include "current_stream.h"
#include "on_host.h"

namespace simulated {
namespace {

using c10::IValue;
using torch::jit::Stack;
using Change = std::function<at::Tensor(const at::Tensor&)>;

// The same arguments for another device: tensors are changed, and devices that are named.
IValue moved(const IValue& value, const Change& change, c10::Device to) {
  if (value.isTensor()) return value.toTensor().defined() ? IValue(change(value.toTensor())) : value;
  if (value.isTensorList()) {
    c10::List<at::Tensor> list;
    for (const at::Tensor& tensor : value.toTensorVector()) list.push_back(change(tensor));
    return list;
  }
  if (value.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> list;
    for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorVector()) {
      list.push_back(tensor && tensor->defined() ? std::optional(change(*tensor)) : std::nullopt);
    }
    return list;
  }
  if (value.isDevice()) return to;
  return value;
}

Stack all_moved(const std::vector<IValue>& values, const Change& change, c10::Device to) {
  Stack stack;
  for (const IValue& value : values) stack.push_back(moved(value, change, to));
  return stack;
}

at::Tensor as_meta(const at::Tensor& tensor) {
  return at::empty_strided(tensor.sizes(), tensor.strides(), tensor.options().device(at::kMeta));
}

// A CPU tensor among the arguments is a scalar, which a kernel gets by value.
at::Tensor for_kernel(const at::Tensor& tensor) { return tensor.is_cpu() ? tensor.clone() : on_host(tensor); }

std::vector<at::Tensor> tensors_of(const std::vector<IValue>& values) {
  std::vector<at::Tensor> all;
  for (const IValue& value : values) {
    if (value.isTensor() && value.toTensor().defined()) all.push_back(value.toTensor());
    if (value.isTensorList()) {
      for (const at::Tensor& tensor : value.toTensorVector()) all.push_back(tensor);
    }
  }
  return all;
}

// The results on the Meta device, which have shapes alone. False if the operator has no such kernel.
bool shapes_of(const c10::OperatorHandle& op, const std::vector<IValue>& arguments, Stack& results) {
  try {
    results = all_moved(arguments, as_meta, c10::Device(at::kMeta));
    op.callBoxed(results);
    return true;
  } catch (const std::exception&) {
    return false;
  }
}

void run_in_place(const c10::OperatorHandle& op, const std::vector<IValue>& arguments, Stack& results) {
  const auto& schema = op.schema();
  Stack shapes;
  const bool known = shapes_of(op, arguments, shapes);
  size_t shown = 0;
  for (const auto& result : schema.returns()) {
    TORCH_CHECK(result.alias_info(), "the simulated device cannot run ", schema.operator_name());
    for (size_t i = 0; i < arguments.size(); ++i) {
      const auto* info = schema.arguments()[i].alias_info();
      if (info == nullptr || info->beforeSets() != result.alias_info()->beforeSets()) continue;
      if (known && arguments[i].isTensor()) {  // an output may have to grow
        const auto wanted = shapes.at(shown).toTensor().sizes();
        if (arguments[i].toTensor().sizes() != wanted) arguments[i].toTensor().resize_(wanted);
      }
      results.push_back(arguments[i]);
      break;
    }
    ++shown;
  }
  const auto kernel = std::make_shared<Stack>(all_moved(arguments, for_kernel, c10::Device(at::kCPU)));
  current_stream().push([op, kernel] { op.callBoxed(*kernel); });
}

void run_functional(const c10::OperatorHandle& op, const std::vector<IValue>& arguments, Stack& results) {
  for (const auto& result : op.schema().returns()) {
    TORCH_CHECK(!result.alias_info(), "the simulated device has no kernel for the view ",
                op.schema().operator_name());
  }
  Stack shapes;
  const Change like = [](const at::Tensor& tensor) {
    return at::empty_strided(tensor.sizes(), tensor.strides(), tensor.options().device(device()));
  };
  const auto kernel = std::make_shared<Stack>(all_moved(arguments, for_kernel, c10::Device(at::kCPU)));
  if (shapes_of(op, arguments, shapes)) {
    for (const IValue& shape : shapes) results.push_back(moved(shape, like, device()));
    std::vector<at::Tensor> targets;
    for (const at::Tensor& tensor : tensors_of(results)) targets.push_back(on_host(tensor));
    current_stream().push([op, kernel, targets] {
      op.callBoxed(*kernel);
      const std::vector<at::Tensor> made = tensors_of(*kernel);
      for (size_t i = 0; i < targets.size(); ++i) targets[i].copy_(made.at(i));
    });
    return;
  }
  current_stream().drain();  // the shape depends on the values
  op.callBoxed(*kernel);
  const Change to_device = [](const at::Tensor& tensor) { return tensor.to(device()); };
  for (const IValue& value : *kernel) results.push_back(moved(value, to_device, device()));
}

void fallback(const c10::OperatorHandle& op, Stack* stack) {
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  const std::vector<IValue> arguments = torch::jit::pop(*stack, op.schema().arguments().size());
  Stack results;
  if (op.schema().is_mutable()) {
    run_in_place(op, arguments, results);
  } else {
    run_functional(op, arguments, results);
  }
  stack->insert(stack->end(), results.begin(), results.end());
}

}  // namespace

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) { m.fallback(torch::CppFunction::makeFromBoxedFunction<&fallback>()); }

}  // namespace simulated
