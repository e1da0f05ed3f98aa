// SPDX-License-Identifier: Apache-2.0
// Small data files in this user's cache. Other users must not be able to change their content.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

namespace braid {

// Returns the content of the file. Returns nothing if it is not a regular file, if its owner is not this user or
// root, if its mode lets anyone else write, if it is longer than `most_bytes`, or if it cannot be read. Never
// waits, as for a pipe. Does not open a symbolic link.
std::optional<std::string> read_private_file(const std::string& path, size_t most_bytes);

// Replaces the file in one step. Only its owner may read and write the new file. Makes its folder if it is
// missing, for its owner alone. Returns false if the file cannot be written, for example on a full disk. Then no
// other file is left behind.
bool write_private_file(const std::string& path, const std::string& text);

}  // namespace braid
