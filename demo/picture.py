"""Draws the picture that the demo reads, with the available fonts, and annotates it with the boxes that were found."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

LINES = (
    ("Invoice No. 2026-1187", 38),
    ("WebGPU execution provider", 34),
    ("Total amount: 4,382.50 EUR", 32),
    ("The quick brown fox jumps over", 28),
    ("the lazy dog, 0123456789.", 28),
)
TILTED = ("Rotated line of text", 34, 6.0)
SIZE = (640, 480)
FOLDERS = ("/usr/share/fonts", "/usr/local/share/fonts", "/Library/Fonts", "/System/Library/Fonts", "C:/Windows/Fonts")
WANTED = ("DejaVuSans.ttf", "LiberationSerif-Regular.ttf", "DejaVuSerif.ttf", "arial.ttf", "times.ttf", "Arial.ttf")
Font = ImageFont.FreeTypeFont | ImageFont.ImageFont
Box = Sequence[Sequence[float]]


def font_files() -> list[Path]:
    """Returns up to two of the usual fonts on this machine. Without any, Pillow's own font is used."""
    found: dict[str, Path] = {}
    for folder in FOLDERS:
        if Path(folder).is_dir():
            for file in sorted(Path(folder).rglob("*.ttf")):
                found.setdefault(file.name, file)
    return [found[name] for name in WANTED if name in found][:2]


def font(files: Sequence[Path], index: int, size: int) -> Font:
    return ImageFont.truetype(str(files[index % len(files)]), size) if files else ImageFont.load_default(size)


def draw() -> Image.Image:
    """Draws lines of text in two fonts and several sizes, the last one tilted. RGB, 640 by 480 pixels."""
    files = font_files()
    image = Image.new("RGB", SIZE, "white")
    pen, top = ImageDraw.Draw(image), 20
    for index, (text, size) in enumerate(LINES):
        pen.text((30, top), text, fill=(20, 20, 60), font=font(files, index, size))
        top += size + 26
    text, size, angle = TILTED
    strip = Image.new("RGB", (420, 60), "white")
    ImageDraw.Draw(strip).text((10, 10), text, fill="black", font=font(files, 1, size))
    image.paste(strip.rotate(angle, expand=True, fillcolor="white"), (120, top))
    return image


def annotate(image: Image.Image, boxes: Sequence[Box], texts: Sequence[str]) -> Image.Image:
    """Returns the picture with its boxes on the left, and the recognised text in the same places on the right."""
    files = font_files()
    width, height = image.size
    both = Image.new("RGB", (2 * width, height), "white")
    both.paste(image, (0, 0))
    pen = ImageDraw.Draw(both)
    pen.line([(width, 0), (width, height)], fill=(200, 200, 200))
    for box, text in zip(boxes, texts, strict=True):
        corners = [(float(x), float(y)) for x, y in box]
        pen.polygon(corners, outline=(220, 40, 40), width=2)
        left, top = min(x for x, _ in corners), min(y for _, y in corners)
        size = max(10, int(0.7 * abs(corners[3][1] - corners[0][1])))
        pen.text((width + left, top), text, fill=(20, 90, 20), font=font(files, 0, size))
    return both
