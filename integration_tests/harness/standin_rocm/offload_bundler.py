# SPDX-License-Identifier: MIT
"""clang-offload-bundler as clang's HIP driver calls it: code objects of several targets in one file.

    clang-offload-bundler -type=o -bundle-align=4096 -targets=HOST,GPU... -input=FILE... -output=FILE

The format: the magic, the number of entries (u64), per entry offset, size and length of its id (u64 each) and the id,
then the payloads in the same order.
"""

import struct
import sys
from pathlib import Path

MAGIC = b"__CLANG_OFFLOAD_BUNDLE__"


def bundle(targets: list[str], payloads: list[bytes], alignment: int) -> bytes:
    """One bundle of `payloads`, each at a multiple of `alignment`, under the ids `targets`."""
    header_size = len(MAGIC) + 8 + sum(24 + len(target) for target in targets)
    entries, body, offset = [], b"", header_size
    for target, payload in zip(targets, payloads, strict=True):
        padding = -offset % alignment
        body += bytes(padding) + payload
        entries.append(struct.pack("<QQQ", offset + padding, len(payload), len(target)) + target.encode())
        offset += padding + len(payload)
    return MAGIC + struct.pack("<Q", len(targets)) + b"".join(entries) + body


def main(arguments: list[str]) -> None:
    options: dict[str, list[str]] = {}
    for argument in arguments:
        name, _, value = argument.partition("=")
        options.setdefault(name.lstrip("-"), []).append(value)
    known = {"type", "bundle-align", "targets", "input", "output"}
    if unknown := options.keys() - known:
        sys.exit(f"clang-offload-bundler: this stand-in does not know {', '.join(sorted(unknown))}")
    payloads = [Path(path).read_bytes() for path in options["input"]]
    targets = options["targets"][0].split(",")
    alignment = int(options.get("bundle-align", ["1"])[0])
    Path(options["output"][0]).write_bytes(bundle(targets, payloads, alignment))


if __name__ == "__main__":
    main(sys.argv[1:])
