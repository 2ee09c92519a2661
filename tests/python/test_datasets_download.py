"""Promises of downloads, against a server on this machine: mirrors in turn, checksums, many processes."""

from __future__ import annotations

import errno
import gzip
import hashlib
import http.server
import socket
import struct
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import cifar_made
from pdnn import datasets
from pdnn.datasets import download
from pdnn.datasets.download import fetch
from processes import Completed

pytest.importorskip("pooch", reason="downloads files")

CONTENT = b"forty-two images" * 5000
SHA256 = hashlib.sha256(CONTENT).hexdigest()


class Mirror:
    """A server of files, which breaks off after `most` bytes, and the names that were asked of it."""

    def __init__(self, files: dict[str, bytes], most: int | None = None) -> None:
        asked: list[str] = []

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                name = self.path.lstrip("/")
                asked.append(name)
                if name not in files:
                    self.send_error(404)
                    return
                self.send_response(200)
                self.send_header("Content-Length", str(len(files[name])))
                self.end_headers()
                self.wfile.write(files[name][:most])

            def log_message(self, format: str, *args: object) -> None:
                pass

        self.asked = asked
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/"
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.01,))
        self.thread.start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


@pytest.fixture
def mirror(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[dict[str, bytes]], Mirror]]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.delenv("PDNN_DATA", raising=False)
    monkeypatch.delenv("PDNN_MIRROR", raising=False)
    started: list[Mirror] = []

    def start(files: dict[str, bytes], most: int | None = None) -> Mirror:
        started.append(Mirror(files, most))
        return started[-1]

    yield start
    for server in started:
        server.close()


def test_a_sound_file_is_fetched_once(mirror: Callable[..., Mirror], tmp_path: Path) -> None:
    server = mirror({"a.gz": CONTENT})
    for _ in range(2):
        assert fetch("a.gz", SHA256, [server.url], [tmp_path / "new" / "folder"]).read_bytes() == CONTENT
    assert server.asked == ["a.gz"]
    assert [file.name for file in (tmp_path / "new" / "folder").iterdir() if file.name != ".lock"] == ["a.gz"]


def test_a_damaged_file_is_fetched_again(mirror: Callable[..., Mirror], tmp_path: Path) -> None:
    (tmp_path / "a.gz").write_bytes(CONTENT[:-1])
    assert fetch("a.gz", SHA256, [mirror({"a.gz": CONTENT}).url], [tmp_path]).read_bytes() == CONTENT


def test_a_file_system_without_locks_takes_downloads(
    mirror: Callable[..., Mirror], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, "no locks here")

    monkeypatch.setattr("fcntl.flock", refuse)
    assert fetch("a.gz", SHA256, [mirror({"a.gz": CONTENT}).url], [tmp_path]).read_bytes() == CONTENT


def test_mirrors_are_tried_in_turn(mirror: Callable[..., Mirror], tmp_path: Path) -> None:
    missing, wrong, right = mirror({}), mirror({"a.gz": b"something else"}), mirror({"a.gz": CONTENT})
    mirrors = ["http://127.0.0.1:9/", missing.url, wrong.url, right.url]
    assert fetch("a.gz", SHA256, mirrors, [tmp_path]).read_bytes() == CONTENT
    assert (missing.asked, wrong.asked, right.asked) == (["a.gz"], ["a.gz"], ["a.gz"])


def test_mirrors_of_ones_own_come_first(
    mirror: Callable[..., Mirror], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    missing, own, public = mirror({}), mirror({"a.gz": CONTENT}), mirror({"a.gz": CONTENT})
    monkeypatch.setenv("PDNN_MIRROR", f"{missing.url.rstrip('/')} {own.url}")
    assert fetch("a.gz", SHA256, [public.url], [tmp_path]).read_bytes() == CONTENT
    assert (missing.asked, own.asked, public.asked) == (["a.gz"], ["a.gz"], [])


def test_every_failure_is_told_and_nothing_is_left(mirror: Callable[..., Mirror], tmp_path: Path) -> None:
    missing, wrong = mirror({}), mirror({"a.gz": b"something else"})
    cut, elsewhere = mirror({"a.gz": CONTENT[:-1]}), tmp_path / "elsewhere"
    with pytest.raises(OSError, match=r"^a\.gz could not be downloaded:") as caught:
        fetch("a.gz", SHA256, [missing.url, wrong.url, cut.url, "http://127.0.0.1:9/"], [elsewhere, tmp_path])
    said = str(caught.value).splitlines()
    assert [line.split(": ")[0] for line in said[1:5]] == [
        f"  {url}a.gz" for url in (missing.url, wrong.url, cut.url, "http://127.0.0.1:9/")
    ]
    assert "404" in said[1] and "SHA256 hash" in said[2] and SHA256 in said[2]
    assert "SHA256 hash" in said[3] and "refused" in said[4]
    assert said[5].startswith(f"It was looked for in {elsewhere}, {tmp_path}. To bring it by hand,")
    assert [file.name for file in tmp_path.iterdir()] == [".lock"]


def test_a_mirror_that_falls_silent_or_breaks_off_is_given_up(
    mirror: Callable[..., Mirror], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(download, "TIMEOUT", 2.0)  # within which the others answer
    right = mirror({"a.gz": CONTENT})
    with socket.create_server(("127.0.0.1", 0)) as silent:  # accepts, and never answers
        mirrors = [
            f"http://127.0.0.1:{silent.getsockname()[1]}/",
            mirror({"a.gz": CONTENT}, 1000).url,
            right.url,
        ]
        assert fetch("a.gz", SHA256, mirrors, [tmp_path]).read_bytes() == CONTENT
    assert right.asked == ["a.gz"]


@pytest.mark.parametrize("terminal", [False, True])
def test_a_download_shows_on_a_terminal_how_far_it_is(
    mirror: Callable[..., Mirror],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    terminal: bool,
) -> None:
    pytest.importorskip("tqdm", reason="draws the bar")
    server = mirror({"a.gz": CONTENT})
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal)
    for name in ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMIX_RANK"):
        monkeypatch.delenv(name, raising=False)
    fetch("a.gz", SHA256, [server.url], [tmp_path])
    assert ("80.0k/80.0k" in capsys.readouterr().err) == terminal


def test_processes_at_once_download_once(
    mirror: Callable[..., Mirror], tmp_path: Path, run_python: Callable[..., Completed]
) -> None:
    server = mirror({"a.gz": CONTENT})
    code = (
        "import subprocess, sys\n"
        "one = 'from pathlib import Path; from pdnn.datasets.download import fetch; '\n"
        f'one += \'fetch("a.gz", "{SHA256}", ["{server.url}"], [Path("{tmp_path}")])\'\n'
        f"ranks = [subprocess.Popen([{sys.executable!r}, '-c', one]) for _ in range(4)]\n"
        "sys.exit(sum(rank.wait() for rank in ranks))\n"
    )
    run_python(["-c", code], timeout=60)
    assert server.asked == ["a.gz"] and (tmp_path / "a.gz").read_bytes() == CONTENT


def small_mnist() -> dict[str, bytes]:
    """Four IDX files with MNIST's names."""
    files = {}
    for part, n in (("train", 3), ("t10k", 2)):
        files[f"{part}-images-idx3-ubyte.gz"] = gzip.compress(
            struct.pack(">4I", 0x803, n, 28, 28) + bytes(n * 784)
        )
        files[f"{part}-labels-idx1-ubyte.gz"] = gzip.compress(struct.pack(">2I", 0x801, n) + bytes(range(n)))
    return files


@pytest.mark.parametrize("into_root", [True, False], ids=["root", "cache"])
def test_mnist_is_downloaded_into_root_or_the_cache(
    mirror: Callable[..., Mirror], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, into_root: bool
) -> None:
    files = small_mnist()
    server = mirror(files)
    module = sys.modules["pdnn.datasets.mnist_files"]
    monkeypatch.setattr(module, "MIRRORS", (server.url,))
    names = {True: "train", False: "t10k"}
    sums = {
        part: {
            name: hashlib.sha256(data).hexdigest() for name, data in files.items() if name.startswith(word)
        }
        for part, word in names.items()
    }
    monkeypatch.setattr(module, "SHA256", sums)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    root = tmp_path / "root" if into_root else None
    folder = root or download.user_cache("mnist")
    assert tmp_path in folder.parents

    with pytest.raises(FileNotFoundError, match=r"mnist: its files are in none of .*; set PDNN_DATA"):
        datasets.mnist(root, download=False)
    assert server.asked == []
    assert len(datasets.mnist(root, train=False)) == 2
    assert server.asked == ["t10k-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte.gz"]
    assert [len(part) for part in datasets.mnist(root)] == [3, 2]
    assert [len(part) for part in datasets.mnist(root, download=False)] == [3, 2]
    assert len(server.asked) == 4
    assert sorted(file.name for file in folder.glob("*.gz")) == sorted(files)


def test_a_root_is_taken_alone_and_pdnn_data_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for place, n in (("data/mnist", 3), ("root", 1)):
        (tmp_path / place).mkdir(parents=True)
        (tmp_path / place / "train-images-idx3-ubyte").write_bytes(
            struct.pack(">4I", 0x803, n, 1, 1) + bytes(n)
        )
        (tmp_path / place / "train-labels-idx1-ubyte").write_bytes(struct.pack(">2I", 0x801, n) + bytes(n))
    monkeypatch.setenv("PDNN_DATA", str(tmp_path / "data"))
    assert len(datasets.mnist(train=True, download=False)) == 3
    assert len(datasets.mnist(tmp_path / "root", train=True, download=False)) == 1


def test_a_user_without_a_home_keeps_data_among_the_temporary_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nobody(user: int) -> None:
        raise KeyError(user)

    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr("pwd.getpwuid", nobody)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert download.user_cache("mnist") == tmp_path / ".cache" / "pdnn" / "mnist"


def test_a_folder_that_takes_no_download_is_said_with_a_way_out(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(
        NotADirectoryError, match=r"no download can be kept there .*; set XDG_CACHE_HOME .*file/a"
    ):
        fetch("a.gz", SHA256, ["http://127.0.0.1:9/"], [tmp_path / "file" / "a"])


def test_cifar10_is_downloaded_by_its_md5_and_read_from_the_archive(
    mirror: Callable[..., Mirror], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "cifar-10-binary.tar.gz"
    files, x, _ = cifar_made.six_files(".bin")
    members = {f"cifar-10-batches-bin/{file}": content for file, content in files.items()}
    content = cifar_made.archive(members, tmp_path / "made.gz").read_bytes()
    server = mirror({name: content})
    module = sys.modules["pdnn.datasets.cifar_files"]
    monkeypatch.setattr(module, "MIRRORS", (server.url,))
    with pytest.raises(OSError, match=rf"{name} could not be downloaded"):
        datasets.cifar10(tmp_path / "root")
    monkeypatch.setattr(module, "MD5", hashlib.md5(content).hexdigest())
    for _ in range(2):
        train, test = datasets.cifar10(tmp_path / "root")
        assert (train.x == x[:10]).all() and (test.x == x[10:]).all()
    assert server.asked == [name] * 2
    assert sorted(file.name for file in (tmp_path / "root").iterdir()) == [".lock", name]


def test_without_pooch_the_message_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pooch", None)
    with pytest.raises(ImportError, match="pip install pooch; or set PDNN_DATA"):
        fetch("a.gz", SHA256, ["http://127.0.0.1:9/"], [tmp_path])


def test_without_pooch_data_that_are_here_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pooch", None)
    monkeypatch.setenv("PDNN_DATA", str(tmp_path))
    files, x, _ = cifar_made.six_files(".bin")
    (tmp_path / "cifar10").mkdir()
    for name, content in files.items():
        (tmp_path / "cifar10" / name).write_bytes(content)
    assert (datasets.cifar10(train=True).x == x[:10]).all()
