import contextlib
import dataclasses
import errno
import http.server
import resource
import subprocess
import sys
import textwrap
import threading
import time

import pytest

from data_files import cifar_contents, idx_contents, norb_contents, put, small_source
from torchcaps.data import cifar
from torchcaps.data.fetch import LOCK, fetch
from torchcaps.data.locate import VARIABLE
from torchcaps.data.sources import CIFAR10, MNIST, SMALLNORB, SOURCES
from torchcaps.data.types import DataError

PIXELS = "train-images-idx3-ubyte.gz"


class Mirror:
    """A server on loopback with a few files, that can be told to misbehave for some of them."""

    def __init__(self, files=(), faults=(), delay=0.0):
        self.files, self.faults, self.delay, self.asked = dict(files), dict(faults), delay, []
        mirror = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                mirror.answer(self)

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/"

    def answer(self, request):
        name = request.path.lstrip("/")
        self.asked.append(name)
        time.sleep(self.delay)
        fault, content = self.faults.get(name), self.files.get(name)
        if content is None:
            request.send_error(404)
            return
        request.send_response(200)
        if fault != "endless":
            request.send_header("Content-Length", str(len(content)))
        request.end_headers()
        if fault == "broken":
            content = content[: len(content) // 2]
        elif fault == "wrong":
            content = content[:-1] + bytes([content[-1] ^ 1])
        with contextlib.suppress(ConnectionError):
            request.wfile.write(content)
            while fault == "endless":
                request.wfile.write(bytes(1 << 16))


@pytest.fixture
def serve(monkeypatch, tmp_path):
    """Start mirrors; whatever the machine has in the way of proxies and data is out of sight."""
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv(VARIABLE, raising=False)
    started = []

    def start(*arguments, **options):
        mirror = Mirror(*arguments, **options)
        thread = threading.Thread(target=mirror.server.serve_forever, args=(0.01,))
        thread.start()
        started.append((mirror, thread))
        return mirror

    yield start
    for mirror, thread in started:
        mirror.server.shutdown()
        mirror.server.server_close()
        thread.join()


@pytest.fixture
def register(monkeypatch):
    """Make a set's small files the official ones, to be had from some mirrors."""

    def replace(original, contents, *mirrors):
        source, served = small_source(original, contents, [mirror.url for mirror in mirrors])
        monkeypatch.setitem(SOURCES, source.name, source)
        for mirror in mirrors:
            mirror.files.update(served)
        return source

    return replace


def visible(folder):
    """The files of a folder; the lock does not count, anything half-written does."""
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file() and path.name != LOCK)


def test_all_files_come_to_the_cache_folder_once(serve, register, tmp_path):
    mirror = serve()
    register(MNIST, idx_contents(), mirror)
    folder = fetch("mnist")
    assert folder == tmp_path / "cache" / "torchcaps" / "mnist"
    assert visible(folder) == sorted(mirror.files)
    assert len(MNIST.load(folder).train) == 7
    assert fetch("mnist") == folder
    assert len(mirror.asked) == 4


def test_smallnorb_is_unpacked_so_that_it_can_be_mapped(serve, register, tmp_path):
    register(SMALLNORB, norb_contents(), serve())
    folder = fetch("smallnorb", tmp_path)
    assert {path.name: path.read_bytes() for path in folder.glob("*.mat")} == norb_contents()
    assert visible(folder) == sorted(norb_contents())


def test_cifar_is_unpacked(serve, register, tmp_path):
    mirror = serve()
    register(CIFAR10, cifar_contents(), mirror)
    folder = fetch("cifar10", tmp_path)
    assert visible(folder) == [f"{cifar.FOLDER}/{name}" for name in sorted(cifar_contents())]
    assert len(CIFAR10.load(folder).train) == 25
    fetch("cifar10", tmp_path)
    assert mirror.asked == [cifar.ARCHIVE]


@pytest.mark.parametrize("fault", ["broken", "wrong", "endless"])
def test_the_next_mirror_helps_where_one_fails_in_the_middle(serve, register, tmp_path, fault):
    bad, good = serve(faults={PIXELS: fault}), serve()
    register(MNIST, idx_contents(), bad, good)
    folder = fetch("mnist", tmp_path)
    assert (folder / PIXELS).read_bytes() == good.files[PIXELS]
    assert good.asked == [PIXELS]
    assert visible(folder) == sorted(good.files)


def test_the_next_mirror_helps_where_a_file_is_not_found(serve, register, tmp_path):
    bad, good = serve(), serve()
    register(MNIST, idx_contents(), bad, good)
    del bad.files[PIXELS]
    assert visible(fetch("mnist", tmp_path)) == sorted(good.files)
    assert good.asked == [PIXELS]


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("broken", r"the connection ended after \d+ of \d+ bytes"),
        ("wrong", r"its md5 is \w+, expected \w+"),
        ("endless", r"it gives more than \d+ bytes"),
    ],
)
def test_a_bad_download_never_looks_whole(serve, register, tmp_path, fault, reason):
    mirror = serve(faults={PIXELS: fault})
    register(MNIST, idx_contents(), mirror)
    with pytest.raises(DataError, match=f"{mirror.url}{PIXELS}: {reason}"):
        fetch("mnist", tmp_path)
    assert visible(tmp_path) == []


def test_without_a_network_the_error_says_what_to_put_where(serve, register, tmp_path):
    mirror = serve()
    source = register(MNIST, idx_contents(), mirror)
    mirror.server.shutdown()
    mirror.server.server_close()  # from now on connections are refused
    with pytest.raises(DataError) as error:
        fetch("mnist", tmp_path)
    message = str(error.value)
    assert "Connection refused" in message
    assert f"put these files into {tmp_path / 'mnist'}" in message
    for download in source.downloads:
        assert f"{download.name}  md5 {download.md5}" in message
    assert mirror.url in message


def test_where_only_the_contents_checksum_is_known_it_is_checked(serve, register, tmp_path, monkeypatch):
    mirror = serve()
    source = register(MNIST, idx_contents(), mirror)
    unknown = tuple(dataclasses.replace(one, md5=None, size=None) for one in source.downloads)
    monkeypatch.setitem(SOURCES, "mnist", dataclasses.replace(source, downloads=unknown))
    assert len(visible(fetch("mnist", tmp_path / "a"))) == 4
    other = put(tmp_path / "other", idx_contents(train=6), gzipped=True)
    mirror.files = {path.name: path.read_bytes() for path in other.iterdir()}
    with pytest.raises(DataError, match="the md5 of its content is not"):
        fetch("mnist", tmp_path / "b")
    mirror.files[PIXELS] = b"<html>a page that says sorry</html>"
    with pytest.raises(DataError, match="byte 0: not an IDX file"):
        fetch("mnist", tmp_path / "b")


def test_files_that_a_user_supplied_are_kept_and_the_rest_fetched(serve, register, tmp_path):
    mirror = serve()
    register(MNIST, idx_contents(train=7), mirror)
    own = idx_contents(train=7)["train-images-idx3-ubyte"][:-3] + b"own"
    put(tmp_path / "mnist", {"train-images.idx3-ubyte": own})
    folder = fetch("mnist", tmp_path)
    assert PIXELS not in mirror.asked
    assert len(mirror.asked) == 3
    assert (folder / "train-images.idx3-ubyte").read_bytes() == own
    assert len(MNIST.load(folder).train) == 7


def test_a_damaged_file_of_the_users_is_named_and_kept(serve, register, tmp_path):
    mirror = serve()
    register(MNIST, idx_contents(), mirror)
    put(tmp_path / "mnist", {"train-images-idx3-ubyte": b"damaged"})
    with pytest.raises(DataError, match=r"byte 0: not an IDX file.*\nMove it away"):
        fetch("mnist", tmp_path)
    assert mirror.asked == []
    assert visible(tmp_path / "mnist") == ["train-images-idx3-ubyte"]


@contextlib.contextmanager
def no_file_larger_than(size):
    """The system refuses to write on, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize(
    ("original", "contents"),
    [(MNIST, idx_contents(train=3000)), (CIFAR10, cifar_contents(300)), (SMALLNORB, norb_contents(train=100))],
    ids=["keep", "untar", "gunzip"],
)
def test_a_disk_that_takes_no_more(serve, register, tmp_path, original, contents):
    mirror, spare = serve(), serve()
    register(original, contents, mirror, spare)
    with no_file_larger_than(1 << 19), pytest.raises(DataError, match="cannot be written: File too large"):
        fetch(original.name, tmp_path)
    assert visible(tmp_path) == []
    assert spare.asked == []  # another mirror would not help


def test_a_full_disk_while_unpacking(serve, register, tmp_path, monkeypatch):
    register(CIFAR10, cifar_contents(), serve())

    def full(_file):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("torchcaps.data.writing.to_disk", full)  # the download goes through fetch's own
    with pytest.raises(
        DataError, match=r"data_batch_1.bin cannot be written: No space left on device; no partial file"
    ):
        fetch("cifar10", tmp_path)
    assert visible(tmp_path) == []


def test_what_a_killed_process_left_is_cleared_away(serve, register, tmp_path):
    register(MNIST, idx_contents(), serve())
    put(tmp_path / "mnist", {f".{PIXELS}.0a1b2c3d.part": b"half", LOCK: b""})
    assert len(visible(fetch("mnist", tmp_path))) == 4


def test_a_folder_that_cannot_be_made(serve, register, tmp_path):
    register(MNIST, idx_contents(), serve())
    (tmp_path / "file").touch()
    with pytest.raises(DataError, match="cannot download into"):
        fetch("mnist", tmp_path / "file")


def test_there_is_a_bar_on_a_terminal_and_silence_elsewhere(serve, register, tmp_path, monkeypatch, capsys):
    register(MNIST, idx_contents(), serve())
    fetch("mnist", tmp_path / "quiet")
    assert capsys.readouterr() == ("", "")
    monkeypatch.setenv("FORCE_COLOR", "1")  # rich then takes any stream for a terminal
    fetch("mnist", tmp_path / "bar")
    out, shown = capsys.readouterr()
    assert out == ""
    assert PIXELS in shown
    fetch("mnist", tmp_path / "asked to be quiet", progress=False)
    assert capsys.readouterr() == ("", "")


def test_two_threads_download_once(serve, register, tmp_path):
    mirror = serve(delay=0.02)
    register(MNIST, idx_contents(), mirror)
    threads = [threading.Thread(target=fetch, args=("mnist", tmp_path)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(mirror.asked) == visible(tmp_path / "mnist")


PROCESS = """
    import sys
    from pathlib import Path
    from data_files import idx_contents, small_source
    from torchcaps.data.fetch import fetch
    from torchcaps.data.sources import MNIST, SOURCES

    SOURCES["mnist"], _ = small_source(MNIST, idx_contents(), [sys.argv[1]])
    sys.stdin.readline()
    print(len(MNIST.load(fetch("mnist", Path(sys.argv[2]))).train))
"""


def test_two_processes_download_once(serve, register, tmp_path):
    mirror = serve(delay=0.1)
    register(MNIST, idx_contents(), mirror)
    command = [sys.executable, "-c", textwrap.dedent(PROCESS), mirror.url, str(tmp_path)]
    environment = {"PYTHONPATH": ":".join(sys.path), "no_proxy": "*"}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "env": environment}
    processes = [subprocess.Popen(command, **pipes) for _ in range(2)]
    for process in processes:  # neither starts before both are told to
        process.stdin.write("\n")
        process.stdin.flush()
    assert [process.communicate(timeout=60)[0] for process in processes] == ["7\n", "7\n"]
    assert sorted(mirror.asked) == visible(tmp_path / "mnist")
