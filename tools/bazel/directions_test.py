#!/usr/bin/env python3
"""Every room may import exactly the rooms to its left, by Bazel's visibility as by tools/tidy.

    directions_test.py TIDY ROOM=LABEL=FILE...    FILE: what Bazel says ROOM may see
"""

import ast
import sys


def directions(tidy):
    """LEFT_OF in tools/tidy: the rooms that a room may import."""
    with open(tidy, encoding="utf-8") as f:
        tree = ast.parse(f.read())
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "LEFT_OF":
            return {room: set(left.split()) for room, left in ast.literal_eval(node.value).items()}
    sys.exit(f"FAILED: {tidy} has no LEFT_OF")


def main():
    left_of = directions(sys.argv[1])
    rooms = [argument.split("=") for argument in sys.argv[2:]]
    # `//rust/rule` is short for `//rust/rule:rule`.
    names = {label if ":" in label else f"{label}:{label.split('/')[-1]}": room
             for room, label, _ in rooms}
    wrong = []
    for room, _, file in rooms:
        with open(file, encoding="utf-8") as f:
            seen = {names[line] for line in f.read().split()} - {room}
        allowed = left_of.get(room, set())
        wrong += [f"{room} may import {other}, but tools/tidy says no: rust/BUILD.bazel"
                  for other in sorted(seen - allowed)]
        wrong += [f"{room} may not import {other}, but tools/tidy says yes: rust/BUILD.bazel"
                  for other in sorted(allowed - seen)]
    for line in wrong:
        print(line)
    print(f"{len(rooms) - len({line.split()[0] for line in wrong})} passed, {len(wrong)} failed")
    sys.exit(1 if wrong or not rooms else 0)


if __name__ == "__main__":
    main()
