# SPDX-License-Identifier: Apache-2.0
"""What the key-value server and its clients say to each other.

A connection begins with a greeting and a token from the client. The server greets back when the token is right.
Then the client asks and the server answers, one at a time: SET key value, or GET key, which waits for the key.
Nothing is unpickled or evaluated.

The last figure of the greeting is the version. Client and server come from one package, so two versions never
speak to each other. A server greets a client of another version with its own version and hangs up.
"""

import struct

FAMILY = b"braid store "
GREETING = FAMILY + b"2\n\0\0"
TOKEN_BYTES = 16
NO_TOKEN = bytes(TOKEN_BYTES)

SET, GET = b"S", b"G"
REQUEST = struct.Struct("!cIId")  # which, length of the key, of the value, seconds to wait
NONE, VALUE, REFUSED = range(3)
REPLY = struct.Struct("!BI")  # which of the three, length of the value, or of the reason for a refusal

MOST_KEY_BYTES = 4096
MOST_VALUE_BYTES = 1 << 20
LONGEST_WAIT_S = 3600.0
