"""The file of a ledger: which directory, whether that is safe, and how the file comes to be and goes."""

from __future__ import annotations

import mmap
import os
import stat


class Unfit(Exception):
    """The reason why there is no ledger, for people."""


def directory_of(directory: str | None) -> str:
    """Where ledgers are: what was asked for, else `$PLIMSOLL_DIR`, else the user's directory in shared memory."""
    return directory or os.environ.get("PLIMSOLL_DIR") or f"/dev/shm/plimsoll-{os.geteuid()}"


def prepare(directory: str) -> None:
    """Makes the directory if it is missing. Raises Unfit if somebody else could put files there."""
    try:
        os.mkdir(directory, 0o700)
    except FileExistsError:
        pass
    except OSError as error:
        raise Unfit(f"cannot make {directory}: {error.strerror}") from None
    try:
        found = os.stat(directory, follow_symlinks=False)
    except OSError as error:
        raise Unfit(f"cannot look at {directory}: {error.strerror}") from None
    if not stat.S_ISDIR(found.st_mode):
        raise Unfit(f"{directory} is no directory; set PLIMSOLL_DIR to one")
    if found.st_uid not in (os.geteuid(), 0):
        raise Unfit(f"{directory} belongs to user {found.st_uid}, not to {os.geteuid()} or root")
    if found.st_mode & stat.S_IWOTH:
        raise Unfit(f"everybody can write to {directory}; take that right away: chmod o-w")


class LedgerFile:
    """A file that is mapped, and appears under its name only once it is complete."""

    def __init__(self, directory: str, app: str, size: int) -> None:
        """Makes the file under a name that no agent looks at. Raises Unfit."""
        self.name = f"{app}.{os.getpid()}.ledger"
        self.path = os.path.join(directory, self.name)
        self._unfinished = os.path.join(directory, f".{self.name}.new")
        try:
            if os.path.lexists(self._unfinished):
                os.unlink(self._unfinished)  # from a process with our number that was killed
            fd = os.open(self._unfinished, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise Unfit(f"cannot make {self.path}: {error.strerror}") from None
        try:
            os.fchmod(fd, 0o600)
            # Whatever the file system cannot give must be found out here: later it would be a SIGBUS.
            os.posix_fallocate(fd, 0, size)
            self.memory = mmap.mmap(fd, size)
            found = os.fstat(fd)
            self._identity = (found.st_dev, found.st_ino)
        except (OSError, ValueError) as error:
            self._unlink(self._unfinished)
            raise Unfit(f"cannot make {self.path} with {size} bytes: {getattr(error, 'strerror', None) or error}") from None
        finally:
            os.close(fd)

    def publish(self) -> None:
        """Gives the file its name. Raises Unfit."""
        try:
            os.rename(self._unfinished, self.path)
        except OSError as error:
            self._unlink(self._unfinished)
            raise Unfit(f"cannot make {self.path}: {error.strerror}") from None

    def remove(self) -> None:
        """Removes the file, if what has its name is still this one."""
        try:
            found = os.stat(self.path, follow_symlinks=False)
            if (found.st_dev, found.st_ino) == self._identity:
                os.unlink(self.path)
        except OSError:
            pass

    @staticmethod
    def _unlink(path: str) -> None:
        try:
            os.unlink(path)
        except OSError:
            pass


def process_started() -> int:
    """Field 22 of /proc/self/stat, in clock ticks since boot: tells this process from a later one with its number. 0 if that cannot be read."""
    try:
        with open("/proc/self/stat", "rb") as file:
            # The second field is a name in parentheses, with whatever in it.
            return int(file.read().rpartition(b")")[2].split()[19])
    except (OSError, ValueError, IndexError):
        return 0
