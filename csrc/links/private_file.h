// SPDX-License-Identifier: Apache-2.0
// Small files of data in this user's cache, which others should not be able to put words into.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

namespace braid {

// The content of a plain file of this user's or root's that nobody else may write to. Nothing when it is none, when it
// is longer than `most_bytes`, or when it cannot be read. Never waits, as it would for a pipe, and follows no link.
std::optional<std::string> read_private_file(const std::string& path, size_t most_bytes);

// Replaces the file in one step, with one that only its owner may read and write. Makes its folder when that is
// missing, for its owner alone. False when it cannot be written, as on a full disk; then nothing is left behind.
bool write_private_file(const std::string& path, const std::string& text);

}  // namespace braid
