// SPDX-License-Identifier: Apache-2.0
// Derives groups from a group: split, merge, shrink.
#include <algorithm>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include "c10d/backend.h"
#include "communicator/process.h"

namespace braid::adapter {
namespace {

constexpr int kShrinkAborts = 1;  // torch.distributed.SHRINK_ABORT

struct Watcher {
  Backend::OnDerived call;
};

}  // namespace

void Backend::on_derived(OnDerived call) { of_this_process<Watcher>().call = std::move(call); }

BackendConfig Backend::derived(const c10::intrusive_ptr<::c10d::Store>& store,
                               const c10::intrusive_ptr<Options>& options, const std::string& suffix) const {
  BackendConfig other = config_;
  other.store = store;
  other.timeout = options ? options->timeout : timeout_.load();
  const bool named = options && !options->group_name.empty() && options->group_name != config_.group_id;
  other.group_id = named ? options->group_name : config_.group_id + suffix;
  other.global_ranks.clear();
  other.servers = {};  // aggregators join the default group only
  return other;
}

// torch calls once per device type, with the same store. braid has one backend for all device types.
c10::intrusive_ptr<::c10d::Backend> Backend::derive_once(BackendConfig config) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (derived_from_ == config.store) {
      if (auto known = derived_.lock()) return known;
    }
  }
  auto made = create(config);
  if (const OnDerived& call = of_this_process<Watcher>().call) call(made, config);
  const std::lock_guard<std::mutex> lock(mutex_);
  derived_from_ = config.store;
  derived_ = c10::weak_intrusive_ptr<::c10d::Backend>(made);
  return made;
}

c10::intrusive_ptr<::c10d::Backend> Backend::split(const c10::intrusive_ptr<::c10d::Store>& store,
                                                   const std::vector<int>& ranks,
                                                   const c10::intrusive_ptr<Options>& options) {
  std::string suffix = ":split";
  for (const int rank : ranks) {
    TORCH_CHECK_VALUE(rank >= 0 && rank < size_, "braid split: rank ", rank,
                      " is not in the group, which has ranks 0 to ", size_ - 1);
    TORCH_CHECK_VALUE(std::count(ranks.begin(), ranks.end(), rank) == 1, "braid split: rank ", rank,
                      " is listed more than once");
    suffix += ":" + std::to_string(rank);
  }
  const auto place = std::find(ranks.begin(), ranks.end(), rank_);
  if (place == ranks.end()) return nullptr;
  BackendConfig part = derived(store, options, suffix);
  part.rank = static_cast<int>(place - ranks.begin());
  part.size = static_cast<int>(ranks.size());
  for (const int rank : ranks) part.global_ranks.push_back(members_->global_rank(rank));
  return derive_once(std::move(part));
}

c10::intrusive_ptr<::c10d::Backend> Backend::merge(const c10::intrusive_ptr<::c10d::Store>& store,
                                                   const c10::intrusive_ptr<Options>& options, const int& rank,
                                                   const int& size) {
  BackendConfig whole = derived(store, options, ":merge");
  whole.rank = rank;
  whole.size = size;
  if (options) {
    whole.global_ranks.assign(options->global_ranks_in_group.begin(), options->global_ranks_in_group.end());
    if (whole.global_ranks.size() != static_cast<size_t>(size)) whole.global_ranks.clear();
  }
  return derive_once(std::move(whole));
}

c10::intrusive_ptr<::c10d::Backend> Backend::shrink(const std::vector<int64_t>& excluded, int flags,
                                                    const c10::intrusive_ptr<Options>& options) {
  for (const int64_t rank : excluded) {
    TORCH_CHECK_VALUE(rank >= 0 && rank < size_, "braid shrink: rank ", rank,
                      " is not in the group, which has ranks 0 to ", size_ - 1);
    TORCH_CHECK_VALUE(rank != rank_, "braid shrink: rank ", rank,
                      " excludes itself; only those who stay may call");
  }
  std::vector<int> stay;
  for (int rank = 0; rank < size_; ++rank) {
    if (std::find(excluded.begin(), excluded.end(), rank) == excluded.end()) stay.push_back(rank);
  }
  if ((flags & kShrinkAborts) != 0) abort("the group is shrunk");
  // The same name on all ranks that stay, whatever happens to the others.
  const std::string name = "shrink:" + std::to_string(shrinks_.fetch_add(1));
  return split(c10::make_intrusive<::c10d::PrefixStore>(name, config_.store), stay, options);
}

}  // namespace braid::adapter
