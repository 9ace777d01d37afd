"""The check of the data folder names what is missing and what was changed."""

import hashlib

import data_sources
import pytest


def test_missing_and_changed_files_are_named(tmp_path, monkeypatch: pytest.MonkeyPatch, capsys):
    digest = hashlib.sha256(b"as listed").hexdigest()
    listed = tmp_path / "sources.toml"
    listed.write_text(f'[one]\nsource = "a site"\nlicence = "MIT"\n[one.files]\n"a" = "{digest}"\n"b/c" = "{digest}"\n')
    monkeypatch.setattr(data_sources, "SOURCES", listed)
    (tmp_path / "one" / "b").mkdir(parents=True)
    (tmp_path / "one" / "a").write_bytes(b"as listed")
    assert data_sources.main(["--check", str(tmp_path)]) == 1
    assert capsys.readouterr().out == "one/b/c: missing\n"
    (tmp_path / "one" / "b" / "c").write_bytes(b"other")
    assert list(data_sources.differences(tmp_path)) == ["one/b/c: got other contents than the listed SHA-256"]
    (tmp_path / "one" / "b" / "c").write_bytes(b"as listed")
    (tmp_path / "one" / "more").write_bytes(b"an unlisted file is no difference")
    assert data_sources.main(["--check", str(tmp_path)]) == 0
    assert data_sources.main([]) == 0
    assert "one: 2 files; a site; MIT" in capsys.readouterr().out
