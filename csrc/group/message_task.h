// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "engine/progress.h"
#include "group/messages.h"

namespace braid {

// One message to or from another rank. Only the thread that carries it may use it.
class MessageTask final : public Task {
 public:
  MessageTask(std::shared_ptr<void> owner, Messages& messages, const PointToPoint& message, Deadline deadline,
              std::shared_ptr<Work> work)
      : owner_(std::move(owner)),
        messages_(messages),
        message_(message),
        deadline_(deadline),
        work_(std::move(work)) {
    stall_.begin(work_->started_at(), messages_.member_.options.stall_notice);
  }

  Step advance(bool before_sleep) override;
  Deadline deadline() const override { return std::min(deadline_, stall_.due()); }
  bool fail(const Status& why) override;
  Request* request() { return &request_; }
  // True if the mailbox has the request. If not, the receive waits to be matched with a message. Call it before
  // advance().
  void set_matched(bool matched) { matched_ = matched; }

 private:
  std::optional<Status> outcome();  // nothing while it is not done
  WaitView view() const;

  const std::shared_ptr<void> owner_;  // keeps the messages
  Messages& messages_;
  const PointToPoint message_;
  const Deadline deadline_;
  const std::shared_ptr<Work> work_;
  Stall stall_;
  Request request_;
  bool matched_ = false;
};

}  // namespace braid
