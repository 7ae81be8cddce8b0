"""Output appears whole or not at all, and takes nobody's place."""

import os
from pathlib import Path

import pytest
from contents import names_in

from gaptrace.drafts import check_is_free, new_file, new_folder, replace_file
from gaptrace.errors import GaptraceError


def test_a_file_is_there_when_it_is_whole(tmp_path):
    target = tmp_path / "out.txt"
    with new_file(target) as draft:
        draft.write_text("all")
        assert not target.exists()
    assert target.read_text() == "all"
    assert names_in(tmp_path) == ["out.txt"]


def test_a_folder_is_there_when_it_is_whole(tmp_path):
    target = tmp_path / "out"
    with new_folder(target) as draft:
        (draft / "part.txt").write_text("all")
        assert not target.exists()
    assert (target / "part.txt").read_text() == "all"
    assert names_in(tmp_path) == ["out"]


@pytest.mark.parametrize("new", [new_file, new_folder])
@pytest.mark.parametrize("problem", [ValueError, KeyboardInterrupt])
def test_a_failure_leaves_nothing(tmp_path, new, problem):
    with pytest.raises(problem), new(tmp_path / "out") as draft:
        (draft / "part" if draft.is_dir() else draft).write_text("half")
        raise problem
    assert names_in(tmp_path) == []


@pytest.mark.parametrize("new", [new_file, new_folder])
def test_what_cannot_be_written_is_one_line(tmp_path, new):
    message = "out: cannot be written: No space left"
    with pytest.raises(GaptraceError, match=message), new(tmp_path / "out") as draft:
        (draft / "part" if draft.is_dir() else draft).write_text("half")
        raise OSError(28, "No space left on device")
    assert names_in(tmp_path) == []


@pytest.mark.parametrize("new", [new_file, new_folder])
def test_nothing_takes_the_place_of_what_is_there(tmp_path, new):
    there, folder, link = (tmp_path / name for name in ("there", "folder", "link"))
    there.write_text("old")
    folder.mkdir()
    link.symlink_to(tmp_path / "nowhere")
    for target, reason in ((there, "exists already"), (folder, "is a folder"), (link, "exists")):
        with pytest.raises(GaptraceError, match=reason), new(target):
            raise AssertionError("the block must not run")
    assert there.read_text() == "old"
    assert names_in(tmp_path) == ["folder", "link", "there"]


@pytest.mark.parametrize("new", [new_file, new_folder])
def test_what_appears_meanwhile_stays(tmp_path, new):
    target = tmp_path / "out"
    with pytest.raises(GaptraceError, match="exists already"), new(target) as draft:
        if new is new_file:
            draft.write_text("new")
        target.write_text("somebody else's")
    assert target.read_text() == "somebody else's"
    assert names_in(tmp_path) == ["out"]


def test_the_folder_around_must_be_there(tmp_path):
    with pytest.raises(GaptraceError, match="no such folder; make it, or name another"):
        check_is_free(tmp_path / "no" / "out")


@pytest.mark.parametrize("new", [new_file, new_folder])
@pytest.mark.parametrize(
    ("mode", "said"),
    [
        (0o555, "locked: nothing can be written in this folder; name another"),
        (0o000, "locked/out: cannot be written: Permission denied; name another place with -o"),
    ],
)
def test_a_folder_that_is_closed_is_one_line(tmp_path, monkeypatch, new, mode, said, request):
    tmp_path.chmod(0o755)
    monkeypatch.chdir(tmp_path)  # from here on nobody finds it, whatever is closed above
    folder = Path("locked")
    folder.mkdir()
    folder.chmod(mode)
    request.getfixturevalue("nobody")
    with pytest.raises(GaptraceError, match=f"^{said}"), new(folder / "out"):
        raise AssertionError("the block must not run")
    os.seteuid(os.getuid())
    folder.chmod(0o700)
    assert names_in(folder) == []


@pytest.mark.parametrize("new", [new_file, new_folder])
@pytest.mark.parametrize("length", [250, 300])  # the name of the draft is longer
def test_a_name_that_is_too_long_is_one_line(tmp_path, new, length):
    message = "cannot be written: File name too long"
    with pytest.raises(GaptraceError, match=message), new(tmp_path / ("x" * length)) as draft:
        draft.write_text("all")
    assert names_in(tmp_path) == []


def test_an_older_file_is_replaced_as_a_whole_or_not_at_all(tmp_path, monkeypatch):
    target = tmp_path / "out.html"
    replace_file(target, "first")
    replace_file(target, "second")
    assert target.read_text() == "second"

    def fill_the_disk(self: Path, text: str, encoding: str) -> None:
        self.write_bytes(text[:2].encode(encoding))
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched, pytest.raises(OSError, match="No space left"):
        patched.setattr(Path, "write_text", fill_the_disk)
        replace_file(target, "third")
    assert target.read_text() == "second"
    assert names_in(tmp_path) == ["out.html"]


def test_a_link_stays_a_link_and_a_pipe_a_pipe(tmp_path):
    link = tmp_path / "link"
    link.symlink_to("file")
    replace_file(link, "text")
    assert link.is_symlink()
    assert (tmp_path / "file").read_text() == "text"

    read, write = os.pipe()
    with open(read, encoding="utf-8") as end:  # noqa: PTH123 - a descriptor has no path
        replace_file(Path(f"/dev/fd/{write}"), "text")
        os.close(write)
        assert end.read() == "text"
    assert names_in(tmp_path) == ["file", "link"]
