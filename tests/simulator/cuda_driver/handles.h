// SPDX-License-Identifier: Apache-2.0
// The streams and events that callers of the driver know by handles.
#pragma once

#include <memory>

#include "core/streams.h"

namespace executing {

using simulator::Event;
using simulator::Stream;

// 0 and 1 are the legacy default stream, 2 is the calling thread's own. Null where there is no such stream.
Stream* find_stream(void* handle);
void* make_stream();
bool end_stream(void* handle);

// Null where there is no such event.
std::shared_ptr<Event> find_event(void* handle);
void* make_event();
bool end_event(void* handle);

}  // namespace executing
