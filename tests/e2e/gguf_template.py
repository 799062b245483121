"""A copy of a tiny model that has a chat template: the file's header is read, a key is added, the tensors follow as they
were."""

import struct

KEY = b"tokenizer.chat_template"
STRING, ARRAY = 8, 9
SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
ALIGNMENT = 32


class Cursor:
    def __init__(self, data, at):
        self.data, self.at = data, at

    def number(self, form):
        value, = struct.unpack_from("<" + form, self.data, self.at)
        self.at += struct.calcsize("<" + form)
        return value

    def skip_string(self):
        length = self.number("Q")
        self.at += length

    def skip_value(self, kind):
        if kind == STRING:
            self.skip_string()
        elif kind == ARRAY:
            element, count = self.number("I"), self.number("Q")
            for _ in range(count):
                self.skip_value(element)
        else:
            self.at += SIZES[kind]


def with_template(source, target, template):
    """`source` has no chat template, and keeps to the default alignment."""
    with open(source, "rb") as file:
        data = file.read()
    cursor = Cursor(data, 8)
    num_tensors, num_keys = cursor.number("Q"), cursor.number("Q")
    first_key = cursor.at
    assert KEY not in data and b"general.alignment" not in data
    for _ in range(num_keys):
        cursor.skip_string()
        cursor.skip_value(cursor.number("I"))
    for _ in range(num_tensors):
        cursor.skip_string()
        num_dimensions = cursor.number("I")
        cursor.at += 8 * num_dimensions + 4 + 8
    aligned = lambda size: -(-size // ALIGNMENT) * ALIGNMENT
    text = template.encode()
    added = struct.pack("<Q", len(KEY)) + KEY + struct.pack("<IQ", STRING, len(text)) + text
    head = data[:8] + struct.pack("<QQ", num_tensors, num_keys + 1) + added + data[first_key:cursor.at]
    with open(target, "wb") as file:
        file.write(head.ljust(aligned(len(head)), b"\0") + data[aligned(cursor.at):])
    return target
