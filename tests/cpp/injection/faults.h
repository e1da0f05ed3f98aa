// SPDX-License-Identifier: Apache-2.0
// Makes the system refuse something: memory, descriptors and mappings, or threads. Only in this test binary.
#pragma once

#include <cstdint>
#include <vector>

namespace braid::testing {

enum class Fault { kMemory, kDescriptor, kThread };

// From now on requests of this kind are counted, in all threads; those from the `first` on, `count` of them, are
// refused. 0: none is.
void arm(Fault kind, uint64_t first, uint64_t count = 1);
// Ends that. How many requests there were.
uint64_t disarm();

// Where a request comes from: the calls that led to it, as one number. Of two threads that take turns differently each
// time, the n-th request is seldom the same one; its place is.
using Site = uint64_t;
// From now on the places of requests of this kind are noted, until disarm().
void note_sites(Fault kind);
// Those noted, in the order of their first request.
std::vector<Site> noted_sites();
// The first request from this place on, `count` of them wherever they come from, are refused.
void arm_at(Fault kind, Site site, uint64_t count = 1);

// BRAID_TEST_EVERY_FAULT=1: not a part of the places, but all of them. Takes half an hour.
bool tries_every_place();

}  // namespace braid::testing
