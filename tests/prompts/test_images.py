import struct
import zlib

import pytest

from agentload.prompts.images import digits, png


def parts(image: bytes) -> dict[bytes, bytes]:
    """Take a PNG apart, checking its signature and every checksum."""
    assert image[:8] == b"\x89PNG\r\n\x1a\n"
    found, at = {}, 8
    while at < len(image):
        (length,) = struct.unpack(">I", image[at : at + 4])
        kind, body = image[at + 4 : at + 8], image[at + 8 : at + 8 + length]
        assert image[at + 8 + length : at + 12 + length] == struct.pack(
            ">I", zlib.crc32(kind + body)
        )
        found[kind] = body
        at += 12 + length
    return found


def dots(image: bytes) -> list[str]:
    width, height = struct.unpack(">II", parts(image)[b"IHDR"][:8])
    rows, wide = zlib.decompress(parts(image)[b"IDAT"]), 1 + -(-width // 8)
    assert len(rows) == height * wide
    bits = (
        "".join(f"{byte:08b}" for byte in rows[at + 1 : at + wide])[:width]
        for at in range(0, len(rows), wide)
    )
    return [row.replace("0", ".").replace("1", "#") for row in bits]


@pytest.mark.parametrize("size", [(448, 301), (1, 1), (25, 9), (700, 3), (1200, 1200)])
def test_an_image_is_a_png_of_its_size(size: tuple[int, int]) -> None:
    drawn = dots(png(7, "i", size))
    assert (len(drawn[0]), len(drawn)) == size


def test_an_image_shows_its_digits() -> None:
    assert digits("cam") == "5524"
    assert dots(png(7, "cam", (25, 9))) == [
        ".........................",
        ".#####.#####..###.....#..",
        ".#.....#.....#...#...##..",
        ".####..####......#..#.#..",
        ".....#.....#....#..#..#..",
        ".....#.....#...#...#####.",
        ".#...#.#...#..#.......#..",
        "..###...###..#####....#..",
        ".........................",
    ]


def test_an_image_without_room_for_digits_is_empty() -> None:
    assert dots(png(7, "cam", (20, 2))) == ["." * 20] * 2


def test_a_salt_changes_the_colours_and_not_the_digits() -> None:
    plain, salted = parts(png(7, "i", (60, 20))), parts(png(7, "i", (60, 20), salt="s"))
    assert {kind for kind in plain if plain[kind] != salted[kind]} == {b"PLTE"}
