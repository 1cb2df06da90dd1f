"""RapidOCR reads a picture with its three sessions on WebGPU.

    python -m demo                     draws a picture and reads it
    python -m demo --image FILE        reads another picture

Writes demo-output/picture.png and demo-output/ocr.png (boxes and text). Prints the text with scores, and a table of the three
sessions. It has the nodes on WebGPU, the nodes on the CPU and why, times, the CPU provider's times, and the largest difference.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path

from PIL import Image
from rich.console import Console

from onnxruntime_ep_wgpu import devices, report

from . import picture, reader, show
from .measure import measure
from .progress import Steps
from .reader import PARTS, Recorded


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m demo", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--image", type=Path, help="a picture to read instead of the drawn one")
    parser.add_argument("--out", type=Path, default=Path("demo-output"), help="folder for pictures (%(default)s)")
    parser.add_argument("--repeats", type=int, default=3, help="steady runs per session (%(default)s)")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of tables")
    arguments = parser.parse_args()

    arguments.out.mkdir(parents=True, exist_ok=True)
    image = Image.open(arguments.image).convert("RGB") if arguments.image else picture.draw()
    image.save(arguments.out / "picture.png")

    with Steps(total=4 * len(PARTS)) as steps:

        def ran(recorded: Recorded) -> None:
            count = len(recorded.runs)
            shape = list(next(iter(recorded.runs[-1][0].values())).shape)
            if count > 1:
                steps.expect(1)
            steps.done(f"{recorded.part}: run {count}, input {shape}, {recorded.runs[-1][2]:.2f} s")

        recorded = []
        for part in PARTS:
            steps.doing(f"{part}: opening the session")
            recorded.append(reader.record(part, ran))
            steps.done(f"{part}: session opened in {recorded[-1].creation:.2f} s")
        steps.doing("reading the picture")
        reading = reader.read(image, {r.part: r.session for r in recorded})
        rows = []
        for r in recorded:
            steps.doing(f"{r.part}: steady runs")
            rows.append(measure(r, arguments.repeats, steps.done))

    picture.annotate(image, reading.boxes, reading.texts).save(arguments.out / "ocr.png")
    adapter = report(recorded[0].session).device
    if arguments.json:
        result = {"adapter": adapter, "reading": asdict(reading), "sessions": [asdict(r) for r in rows]}
        print(json.dumps(result, indent=1))
    else:
        console = Console() if sys.stdout.isatty() else Console(width=100)
        show.reading(console, reading)
        software = any(it.ep_metadata["name"] == adapter and "software" in it.ep_metadata for it in devices())
        show.sessions(console, rows, adapter, software)
        console.print(f"Picture: {arguments.out / 'ocr.png'}", highlight=False)
    return 0 if reading.texts else 1


if __name__ == "__main__":
    sys.exit(main())
