"""Freeway's program, read from its cartridge: which instructions there are, and which can write a cell of memory."""

from ale_py import roms

ONE_BYTE = "00 08 0A 18 28 2A 38 40 48 4A 58 60 68 6A 78 88 8A 98 9A A8 AA B8 BA C8 CA D8 E8 EA F8"
THREE_BYTES = (
    "0D 0E 19 1D 1E 20 2C 2D 2E 39 3D 3E 4C 4D 4E 59 5D 5E 6C 6D 6E 79 7D 7E 8C 8D 8E 99 9D AC AD AE B9 BC BD BE"
)
THREE_BYTES += " CC CD CE D9 DD DE EC ED EE F9 FD FE"
BRANCHES = (0x10, 0x30, 0x50, 0x70, 0x90, 0xB0, 0xD0, 0xF0)
JUMP, CALL, ENDS = 0x4C, 0x20, (0x40, 0x60, 0x4C)
# Opcodes that write memory: exact address, address plus index (zero page wraps), address from memory.
EXACT = (0x85, 0x86, 0x84, 0x8D, 0x8E, 0x8C, 0xE6, 0xC6, 0xEE, 0xCE, 0x06, 0x26, 0x46, 0x66, 0x0E, 0x2E, 0x4E, 0x6E)
INDEXED = (0x95, 0x96, 0x94, 0x9D, 0x99, 0xF6, 0xD6, 0xFE, 0xDE, 0x16, 0x36, 0x56, 0x76, 0x1E, 0x3E, 0x5E, 0x7E)
POINTED = (0x81, 0x91)
PUSHES = (0x48, 0x08)
START = 0xF800


def cartridge():
    with open(roms.get_rom_path("freeway"), "rb") as file:  # noqa: PTH123 - ale-py gives a string
        return file.read()


def length(opcode):
    if f"{opcode:02X}" in ONE_BYTE.split():
        return 1
    return 3 if f"{opcode:02X}" in THREE_BYTES.split() else 2


def instructions(program):
    """Follow the program from its start through every branch and call: address -> (opcode, operand)."""
    found, waiting = {}, [START + (int.from_bytes(program[-4:-2], "little") - START) % len(program)]
    while waiting:
        place = waiting.pop()
        while place not in found:
            offset = (place - START) % len(program)
            opcode, size = program[offset], length(program[offset])
            operand = int.from_bytes(program[offset + 1 : offset + size], "little")
            found[place] = (opcode, operand)
            if opcode in BRANCHES:
                waiting.append(place + 2 + operand - 256 * (operand > 127))
            if opcode in (CALL, JUMP):
                waiting.append(START + (operand - START) % len(program))
            if opcode in ENDS:
                break
            place += size
    return found


def writers(found, cell):
    """Return the addresses of the instructions that may write the cell, whatever the index registers hold."""
    exact = [place for place, (opcode, operand) in found.items() if opcode in EXACT and operand == cell]
    indexed = [
        (place, operand)
        for place, (opcode, operand) in found.items()
        if opcode in INDEXED and cell - operand in range(256)
    ]
    return sorted(exact), sorted(indexed)


def deepest(found, place, seen=frozenset()):
    """Return how many bytes of stack the code from here on takes at most before it returns: calls take two each."""
    bytes_deep, waiting, visited, pushed = 0, [place], set(), 0
    while waiting:
        place = waiting.pop()
        while place not in visited:
            visited.add(place)
            opcode, operand = found[place]
            if opcode == CALL:
                target = START + (operand - START) % 2_048
                assert target not in seen, "the program calls itself"
                bytes_deep = max(bytes_deep, 2 + deepest(found, target, seen | {target}))
            if opcode in PUSHES:
                pushed += 1
            if opcode in BRANCHES:
                waiting.append(place + 2 + operand - 256 * (operand > 127))
            if opcode == JUMP:
                waiting.append(START + (operand - START) % 2_048)
            if opcode in ENDS:
                break
            place += length(opcode)
    return bytes_deep + pushed
