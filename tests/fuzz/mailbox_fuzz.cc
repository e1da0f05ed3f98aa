// SPDX-License-Identifier: Apache-2.0
// A mailbox between two peers that send whatever frames they like, over many connections, a part of a payload at a
// time, and an owner who keeps to the rules. It must hold that
//   1. a payload lands where landing() said, at any later time, until the channel is closed or the peer is lost, and
//      no other lands there meanwhile;
//   2. nothing of a request is used once it is done (its memory is freed at that moment, for the address sanitizer);
//   3. what a receive got is of the message with its tag, from its peer;
//   4. after close() every request is done;
//   5. what peers send unasked for takes a bounded amount of memory.
//
//   byte 0    what the wires can do
//   the rest  one operation after another: a byte to say which, and what it needs
#include "fuzz/mailbox_world.h"
#include "fuzz/targets.h"

namespace braid::fuzz {

void mailbox_target(Input input) {
  Reader reader(input);
  const uint8_t wires = reader.byte();
  MailboxWorld world(wires);
  while (!reader.empty()) {
    const size_t operation = reader.one_of(16);
    world.note(operation);
    switch (operation) {
      case 0:
      case 1:
      case 2: world.stranger_frame(reader); break;
      case 3: world.honest_frame(reader); break;
      case 4: world.more_payload(reader); break;
      case 5: world.start(reader, true); break;
      case 6: world.start(reader, false); break;
      case 7: world.begin(reader); break;
      case 8: world.end(reader); break;
      case 9: world.mailbox().poll(); break;
      case 10: world.write_out(reader); break;
      case 11: world.lose(reader); break;
      case 12: world.ask(reader); break;
      case 13: world.flood(reader); break;
      case 14: world.mailbox().set_credit(reader.byte() * size_t{64}); break;
      case 15:  // the two that end all, not too often
        switch (reader.byte()) {
          case 1: world.mailbox().fail({Code::kTimeout, "enough", 1}); break;
          case 2: world.mailbox().close(); break;
          default: break;
        }
    }
    world.check();
  }
  world.close();
}

}  // namespace braid::fuzz
