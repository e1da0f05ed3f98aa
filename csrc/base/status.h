// SPDX-License-Identifier: Apache-2.0
// Errors as values. Errors from outside (a lost peer, a timeout, wrong arguments) travel as a Status by value,
// across threads. They become exceptions only in the Python and torch bindings.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <variant>

namespace braid {

enum class Code : uint8_t {
  kOk,
  kInvalidArgument,  // the caller's arguments are wrong; the group is unharmed
  kMismatch,         // ranks disagree about the operation they are in
  kTimeout,          // a deadline passed
  kPeerLost,         // a peer process died or its connection broke
  kAborted,          // the group failed earlier, or was shut down
  kUnsupported,      // this build or this machine does not support the request
  kSystem,           // the operating system refused a request
  kInternal,         // a bug of braid
};

const char* name_of(Code code);

// To copy a Status takes no memory. So a failure reaches all waiting threads even if no memory is left.
class [[nodiscard]] Status {
 public:
  Status() = default;
  // If there is no memory for the message, the message says so instead.
  Status(Code code, std::string message, int rank = -1) noexcept;
  // kSystem; made without memory.
  static Status out_of_memory() noexcept;

  bool ok() const { return code_ == Code::kOk; }
  Code code() const { return code_; }
  // The rank at fault, or -1 if no single rank is.
  int rank() const { return rank_; }
  const std::string& message() const;

  // The same error with the message "<context>: <message>".
  Status within(const std::string& context) const;

 private:
  Code code_ = Code::kOk;
  int rank_ = -1;
  std::shared_ptr<const std::string> message_;  // null: ""
};

// kSystem with the text of errno appended.
Status system_error(const std::string& what, int error_number);

template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::move(value)) {}         // NOLINT(google-explicit-constructor)
  Result(Status status) : state_(std::move(status)) {}  // NOLINT(google-explicit-constructor)

  bool ok() const { return std::holds_alternative<T>(state_); }
  Status status() const { return ok() ? Status() : std::get<Status>(state_); }
  // REQUIRES: ok().
  T& value() & { return std::get<T>(state_); }
  const T& value() const& { return std::get<T>(state_); }
  T&& value() && { return std::get<T>(std::move(state_)); }

 private:
  std::variant<T, Status> state_;
};

}  // namespace braid
