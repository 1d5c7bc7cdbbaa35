"""TensorBoard event files, written byte by byte: no import of TensorBoard, and tens of microseconds per iteration.

A file is a sequence of records: length (8 bytes), its checksum, a protobuf `Event`, its checksum. Sources: TensorFlow's
`record_writer.h` (records, masked CRC-32C), `event.proto`, `summary.proto`, `tensor.proto` (the field numbers below).
"""

import math
import re
import struct
import time
from pathlib import Path

import numpy as np

CRC_CHUNK = 1024  # bytes that a table of 32 KiB covers at once
HISTOGRAM_BINS = 30
STAMP = r"events\.out\.tfevents\.(\d{1,10})\."  # begins the name of a file: when it was made, in seconds


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)


def _message(field: int, payload: bytes) -> bytes:
    """Encode a protobuf field that holds bytes, a string or another message."""
    return _varint(field << 3 | 2) + _varint(len(payload)) + payload


def _integer(field: int, number: int) -> bytes:
    return _varint(field << 3) + _varint(number)


def _float32(value: float) -> bytes:
    try:
        return struct.pack("<f", value)
    except OverflowError:
        return struct.pack("<f", math.copysign(math.inf, value))


def _doubles(field: int, numbers: np.ndarray) -> bytes:
    return _message(field, np.asarray(numbers, "<f8").tobytes())


def crc32c_table(length: int = CRC_CHUNK) -> np.ndarray:
    """Return the table for `crc32c`.

    Returns:
        (8 * length,) uint32: what each bit of `length` bytes adds to the checksum, the lowest bit of a byte first.
        Fewer bytes use the end of it.
    """
    of_byte: np.ndarray = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        of_byte = (of_byte >> 1) ^ np.where(of_byte & 1, np.uint32(0x82F63B78), np.uint32(0))
    added = of_byte[1 << np.arange(8)]
    table = np.empty((length, 8), np.uint32)
    for row in table[::-1]:
        row[:] = added
        added = of_byte[added & 255] ^ (added >> 8)  # with one more byte after it
    return table.reshape(-1)


def crc32c(data: bytes, table: np.ndarray) -> int:
    """Return the CRC-32C (RFC 3720, appendix B.4) of `data`.

    The checksum is linear over XOR, so all bits of a chunk are added at once; the register of the chunks before enters
    by the first four bytes. With a table for whole bytes, which has 1 MiB, this takes 1.4 times as long.
    """
    register = 0xFFFFFFFF
    for start in range(0, len(data), len(table) // 8):
        chunk = data[start : start + len(table) // 8]
        first = int.from_bytes(chunk[:4], "little") ^ register
        entered = (first & 0xFFFFFFFF).to_bytes(4, "little")[:len(chunk)] + chunk[4:]
        bits = np.unpackbits(np.frombuffer(entered, np.uint8), bitorder="little")
        register = int(np.bitwise_xor.reduce(table[-len(bits):] * bits)) ^ (register >> 8 * len(chunk))
    return register ^ 0xFFFFFFFF


class EventFile:
    """One event file.

    Args:
        folder: The folder of event files.
        first_step: TensorBoard discards what earlier files of the folder contain from this step on.
    """

    def __init__(self, folder: Path, first_step: int = 0) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        earlier = [path.name for path in folder.glob("events.out.tfevents.*")]
        nth, seconds = len(earlier), [int(found[1]) for name in earlier if (found := re.match(STAMP, name))]
        stamp = max([int(time.time()), *seconds])  # TensorBoard reads files in the order of their names
        self.path = folder / f"events.out.tfevents.{stamp:010d}.{nth:04d}.proximo"
        self._file = open(self.path, "xb", buffering=1 << 17)  # noqa: SIM115
        self._table = crc32c_table()
        self._tags: dict[str, bytes] = {}
        self._heads: dict[int, bytes] = {}  # by length of the record, because most of a run have a few lengths
        try:
            self._event(0, _message(3, b"brain.Event:2"))
            if nth:
                self._event(first_step, _message(7, _integer(1, 1)))
            self.flush()
        except BaseException:
            self.close()
            raise

    def scalars(self, step: int, values: dict[str, float]) -> None:
        """Write all scalars of one step in one event; NaN is left out."""
        parts = []
        for tag, value in values.items():
            if not math.isnan(value):
                parts.append((self._tags.get(tag) or self._begin_scalar(tag)) + _float32(value))
        if parts:
            self._event(step, _message(5, b"".join(parts)))

    def _begin_scalar(self, tag: str) -> bytes:
        """Return the bytes before every value of a tag. They are cached: encoding them takes longer than the rest."""
        name = _message(1, tag.encode()) + bytes([2 << 3 | 5])
        self._tags[tag] = bytes([1 << 3 | 2]) + _varint(len(name) + 4) + name
        return self._tags[tag]

    def histogram(self, step: int, tag: str, values: np.ndarray) -> None:
        """Write the distribution of the finite ones of `values` (any shape) in HISTOGRAM_BINS bins of equal width."""
        values = np.asarray(values, np.float64)
        values = values[np.isfinite(values)]
        if not len(values):
            return
        count, edge = np.histogram(values, bins=HISTOGRAM_BINS)
        head = b"".join(struct.pack("<Bd", field << 3 | 1, number) for field, number in enumerate(
            (values.min(), values.max(), len(values), values.sum(), np.square(values).sum()), start=1))
        histogram = head + _doubles(6, edge[1:]) + _doubles(7, count)
        self._event(step, _message(5, _message(1, _message(1, tag.encode()) + _message(5, histogram))))

    def text(self, tag: str, text: str) -> None:
        """Write Markdown for the page of texts, at step 0."""
        plugin = _message(9, _message(1, _message(1, b"text")))
        raw = text.encode(errors="backslashreplace")  # names of files may have bytes that are no text
        tensor = _message(8, _integer(1, 7) + _message(2, _message(2, _integer(1, 1))) + _message(8, raw))
        value = _message(1, f"{tag}/text_summary".encode()) + tensor + plugin
        self._event(0, _message(5, _message(1, value)))

    def flush(self) -> None:
        """Flush everything to the operating system."""
        self._file.flush()

    def close(self) -> None:
        """Flush and close the file."""
        self._file.close()

    def _event(self, step: int, content: bytes) -> None:
        data = struct.pack("<Bd", 1 << 3 | 1, time.time()) + _integer(2, step) + content
        self._file.write((self._heads.get(len(data)) or self._begin_record(len(data))) + data + self._checksum(data))

    def _begin_record(self, size: int) -> bytes:
        """Return the bytes before a record of this length."""
        length = struct.pack("<Q", size)
        self._heads[size] = length + self._checksum(length)
        return self._heads[size]

    def _checksum(self, data: bytes) -> bytes:
        crc = crc32c(data, self._table)
        return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)
