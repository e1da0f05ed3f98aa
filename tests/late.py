# SPDX-License-Identifier: Apache-2.0
"""Tells failures that a slow machine can explain from those that it can't.

A limit of time that passed may say that the machine was busy. A wrong value, a process that crashed or a report of
a sanitizer never says that. Only the first kind is worth a second try.
"""

import re

# What a test, a rank or the product writes when a limit has passed, or when another process holds a port.
LATE = re.compile(
    r"""\b(?:\w*TimeoutError|TimeoutExpired|BrokenBarrierError)\b
    | \b[A-Z_]*(?:SOON|LATE|LIMIT|RUN|WAIT|PATIENCE|TIMEOUT)_S\b
    | \b[Tt]imed\ out\b | Timeout\ \(?> | \bTimeout\b.*\bfrom\ pytest-timeout\b | \bFailed:\ Timeout\b
    | \b[Ww]ait\ timeout\ after\b | \bTimeout\ waiting\ for\ key\b | \b(?:Socket|Connect)\ [Tt]imeout\b
    | has\ not\ answered | did\ not\ come | \bha(?:s|ve)\ not\ come\b | noticed\ only\ after | Ctrl-C\ took
    | status\ -(?:9|12):\ no\ result
    | [Aa]ddress\ already\ in\ use
    | STOOD\ STILL | \*\*\*Timeout""",
    re.VERBOSE,
)
CRASH = re.compile(
    r"""Sanitizer
    | Fatal\ Python\ error | Segmentation\ fault | core\ dumped | terminate\ called | Assertion\ .*\ failed\.
    | corrupted | double\ free | unaligned\ tcache | free\(\):\ invalid
    | crashed\ while\ running
    | \b(?:status|exit\ ?code|returncode)\W{1,3}-(?:4|5|6|7|8|11)\b | SIG(?:SEGV|ABRT|BUS|ILL|FPE)\b
    | \*\*\*Exception:\ (?:SegFault|Illegal|Numerical)""",
    re.VERBOSE,
)
# A rank's part of what run_ranks() raises.
RANK = re.compile(r"(?=rank \d+ (?:ended with|should have))")


def may_try_again(text: str, *, measures_time: bool = False) -> bool:
    """Return whether a slow machine alone can explain this failure.

    Args:
        text: what the failed test printed: errors with their messages, and the lines that raised them.
        measures_time: the test is one of times and rates. A busy machine makes these wrong.
    """
    if CRASH.search(text):
        return False
    if measures_time:
        return True
    if not LATE.search(text):
        return False
    # One rank's wrong value lets the others wait until their limit passes.
    return all(LATE.search(part) for part in RANK.split(text) if "AssertionError" in part)
