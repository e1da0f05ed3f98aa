# SPDX-License-Identifier: Apache-2.0
version: str
build_type: str
compiler: str

def dtypes() -> list[str]: ...
def reduce_instruction_set() -> str: ...
