"""Draw the results of a sweep: pictures, and one HTML page with them that opens without a network.

  pdnn sweep results.json --strategy serial team:2 hogwild:2 --repeats 3
  pdnn report results.json --out report                       # report/index.html and its pictures
  pdnn report results.json --out report --baseline team:1

It shows speedup and efficiency, accuracy against time and against updates, the phases of an epoch on each
rank, the bytes that each rank sends, and updates per second. An unfinished sweep can be drawn too.
"""

from __future__ import annotations

import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of ``pdnn report``."""
    parser.add_argument("file", metavar="FILE", help="the file of pdnn sweep")
    parser.add_argument("--out", required=True, metavar="FOLDER", help="for the page and its pictures")
    parser.add_argument(
        "--baseline",
        default="serial",
        metavar="STRATEGY",
        help="strategy on one rank that speedup compares with; default: %(default)s",
    )


def main(arguments: argparse.Namespace) -> int:
    """Writes the report and names its files."""
    from pdnn import report, sweep

    for path in report.write(sweep.Results.load(arguments.file), arguments.out, arguments.baseline):
        print(path)
    return 0
