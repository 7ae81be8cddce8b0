"""Output appears whole or not at all, and takes nobody's place."""

import pytest
from contents import names_in

from gaptrace.drafts import check_is_free, new_file, new_folder
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
