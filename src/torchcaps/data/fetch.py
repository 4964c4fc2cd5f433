"""Downloads: mirrors in turn, checksums, one process at a time, and whole files or none."""

import hashlib
import http.client
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from torchcaps.data import cifar
from torchcaps.data.locate import candidates, download_folder
from torchcaps.data.reading import Reader, content_md5
from torchcaps.data.sources import Download, Source, find_source
from torchcaps.data.types import DataError
from torchcaps.data.writing import disk_errors, move, part_beside, remove_leftovers, to_disk, whole_file

PIECE = 1 << 18
TIMEOUT = 30.0  # seconds without a byte
SIZE_LIMIT = 1 << 30  # bytes, of a download whose size is not known
LOCK = ".torchcaps.lock"
Show = Callable[[int, int | None], None]  # bytes so far, bytes in all


class BadMirrorError(Exception):
    """A mirror that did not give the file: the next one may."""


def fetch(name: str, root: Path | None = None, progress: bool = True) -> Path:
    """Download what is missing of a set, and return its folder.

    Files that are there are kept whatever their checksum, but must be right in structure.
    """
    source = find_source(name)
    for folder in candidates(source, root):
        if not lacking(source, folder):
            check_present(source, folder)
            return folder
    folder = download_folder(source, root)
    with locked(folder):
        remove_leftovers(folder)
        check_present(source, folder)
        for download in lacking(source, folder):  # looked up again: who held the lock before may have got them
            fetch_one(source, download, folder, progress)
    return folder


def lacking(source: Source, folder: Path) -> list[Download]:
    """The downloads that have something which is not there yet."""
    if source.archive(folder):
        return []
    if not source.missing(folder):
        return []  # optional files too: the official ones may not belong to what is there
    return [one for one in source.downloads if not all(source.find(folder, name) for name in one.files)]


def check_present(source: Source, folder: Path) -> None:
    """What is there is used as it is, so it has to be right."""
    found = {file.name: source.find(folder, file.name) for file in source.files}
    found[source.downloads[0].name] = source.archive(folder)
    for name, path in found.items():
        try:
            if path is not None:
                source.check(name, path)
        except DataError as error:
            raise DataError(f"{error}\nMove it away, and fetch {source.name} again.") from error


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """One process at a time; the others wait, and then find the files."""
    try:
        from filelock import FileLock
    except ImportError:
        raise DataError("fetching needs filelock: pip install 'torchcaps[data]'") from None

    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = FileLock(folder / LOCK)
        lock.acquire()
    except (OSError, NotImplementedError) as error:
        raise DataError(f"cannot download into {folder}: {error}") from error
    try:
        yield
    finally:
        lock.release()


def fetch_one(source: Source, download: Download, folder: Path, progress: bool) -> None:
    """One download, from the first mirror that gives it whole."""
    failures = []
    for mirror in source.mirrors:
        url = mirror + download.name
        try:
            with part_beside(folder / download.name) as part:
                with bar(download.name, progress) as show:
                    save(url, download, part, show)
                check_content(source, download, part)
                install(source, download, part, folder)
                return
        except BadMirrorError as error:
            failures.append(f"  {url}: {error}")
    reasons = "\n".join(failures)
    raise DataError(f"{download.name} could not be downloaded:\n{reasons}\n{source.by_hand(folder)}")


def save(url: str, download: Download, part: Path, show: Show) -> None:
    """What a mirror gives, compared with what the registry knows of it."""
    digest = hashlib.md5(usedforsecurity=False)
    with disk_errors(part.with_name(download.name)), part.open("xb") as file:
        for piece in received(url, download.size, show):
            file.write(piece)
            digest.update(piece)
        to_disk(file)
    if download.md5 not in (None, digest.hexdigest()):
        raise BadMirrorError(f"its md5 is {digest.hexdigest()}, expected {download.md5}")


def received(url: str, size: int | None, show: Show) -> Iterator[bytes]:
    """The answer to a request, piece by piece; whatever the network does wrong is the mirror's fault."""
    done = 0
    try:
        # Some servers refuse the name that Python gives itself.
        request = urllib.request.Request(url, headers={"User-Agent": "torchcaps"})
        with urllib.request.urlopen(request, timeout=TIMEOUT) as answer:
            promised = answer.headers.get("Content-Length", "")
            total = int(promised) if promised.isdigit() else size
            limit = SIZE_LIMIT if size is None else size
            while piece := answer.read(PIECE):
                done += len(piece)
                if done > limit:
                    raise BadMirrorError(f"it gives more than {limit} bytes")
                show(done, total)
                yield piece
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise BadMirrorError(str(error) or type(error).__name__) from error
    if total is not None and done != total:
        raise BadMirrorError(f"the connection ended after {done} of {total} bytes")


def check_content(source: Source, download: Download, part: Path) -> None:
    """The structure of a download, and the checksum of its content where its own is not known."""
    single = len(download.files) == 1
    try:
        source.check(download.files[0] if single else download.name, part)
        if single and download.md5 is None:
            file = next(file for file in source.files if file.name == download.files[0])
            if file.md5 is not None and content_md5(part, file.size) != file.md5:
                raise BadMirrorError(f"the md5 of its content is not {file.md5}")
    except DataError as error:
        raise BadMirrorError(str(error)) from error


def install(source: Source, download: Download, part: Path, folder: Path) -> None:
    """A download that is right gets its name, or what is in it gets theirs; files that are there stay."""
    if source.unpack == "keep":
        with disk_errors(folder / download.name):
            move(part, folder / download.name)
    elif source.unpack == "gunzip":
        with Reader(part) as reader, whole_file(folder / download.files[0]) as file:
            while piece := reader.some(PIECE):
                file.write(piece)
    else:
        for name, content in cifar.archive_members(part):
            if source.find(folder, name) is None:
                with whole_file(folder / cifar.FOLDER / name) as file:
                    file.write(content)


@contextmanager
def bar(name: str, shown: bool) -> Iterator[Show]:
    """A progress bar on a terminal, else nothing."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    console = Console(stderr=True)
    columns = (TextColumn(name), BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, disable=not (shown and console.is_terminal)) as progress:
        task = progress.add_task(name, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)
