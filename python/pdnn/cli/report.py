"""Draw what a sweep has measured: pictures, and one HTML page that holds them and opens without a network.

  pdnn sweep results.json --strategy serial team:2 hogwild:2 --repeats 3
  pdnn report results.json --out report                       # report/index.html and its pictures
  pdnn report results.json --out report --baseline team:1

Speedup and efficiency, accuracy against time and against updates, what the time of an epoch went to on each
rank, the bytes that each rank sends, updates a second. A sweep that is not finished can be drawn, too.
"""

from __future__ import annotations

import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of ``pdnn report``."""
    parser.add_argument("file", metavar="FILE", help="what pdnn sweep wrote")
    parser.add_argument("--out", required=True, metavar="FOLDER", help="for the page and its pictures")
    parser.add_argument(
        "--baseline",
        default="serial",
        metavar="STRATEGY",
        help="on one rank, what speedup is over; default: %(default)s",
    )


def main(arguments: argparse.Namespace) -> int:
    """Writes the report and names its files."""
    from pdnn import report, sweep

    for path in report.write(sweep.Results.load(arguments.file), arguments.out, arguments.baseline):
        print(path)
    return 0
