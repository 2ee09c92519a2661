"""Checkpoints: what a Trainer needs to continue under any strategy, in files that are replaced as a whole."""

from pdnn.checkpoint.collect import collect
from pdnn.checkpoint.content import Content, load, save
from pdnn.checkpoint.folder import FILE, Writer, seed_of, strategy_of
from pdnn.checkpoint.resume import check_position, meet_to_resume, resume, resume_session

__all__ = [
    "FILE",
    "Content",
    "Writer",
    "check_position",
    "collect",
    "load",
    "meet_to_resume",
    "resume",
    "resume_session",
    "save",
    "seed_of",
    "strategy_of",
]
