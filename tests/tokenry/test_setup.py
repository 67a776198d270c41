"""Settings: what docs/deploy.md shows is clean, and what cannot work together starts nothing and says why."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from django.core.exceptions import ImproperlyConfigured

from tests.stores import Postgres
from tests.world import ROOT, command, environment
from tokenry.alone import NotAlone, one_at_a_time, stand_alone
from tokenry.contradictions import refuse_contradictions

SHARED = "0123456789abcdefghijklmnopqrstuvwxyz-ABCDEFGHIJKLMNOPQRSTUVWXYZ"
GOOD = {"DATABASE_URL": "postgres://u@db/t", "REDIS_URL": "redis://v/0", "TOKENRY_SECRET_KEY": SHARED}


def manage(*arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    plain = environment(Path(os.devnull))
    del plain["TOKENRY_NODE_SECRET"]
    return subprocess.run(command(*arguments), env=plain | env, capture_output=True, text=True, timeout=60)


def documented() -> dict[str, str]:
    return dict(re.findall(r"^    ([A-Z_]+)=(\S+)$", (ROOT / "docs" / "deploy.md").read_text(), re.MULTILINE))


def test_the_documented_set_up_passes_djangos_check(tmp_path: Path) -> None:
    env = documented() | {"TOKENRY_HOME": str(tmp_path)}
    assert {"DATABASE_URL", "REDIS_URL", "TOKENRY_SECRET_KEY", "TOKENRY_HTTPS"} <= env.keys()
    done = manage("check", "--deploy", "--fail-level", "WARNING", **env)
    assert done.returncode == 0, done.stderr
    assert "no issues" in done.stdout


def test_a_laptop_is_no_deployment(tmp_path: Path) -> None:
    """The check does look: the same command complains of a set-up that has nothing set."""
    assert manage("check", "--deploy", "--fail-level", "WARNING", TOKENRY_HOME=str(tmp_path)).returncode == 1


CONTRADICTIONS = [
    ({"DATABASE_URL": ""}, "SQLite"),
    ({"DATABASE_URL": "sqlite:///file"}, "SQLite"),
    ({"DATABASE_URL": "mysql://u@db/t"}, "postgres://"),
    ({"REDIS_URL": "http://v"}, "redis://"),
    ({"TOKENRY_SECRET_KEY": ""}, "the same for all"),
    ({"TOKENRY_SECRET_KEY": "short"}, "at least 32"),
    ({"TOKENRY_NODE_SECRET": SHARED}, "must differ"),
    ({"DATABASE_URL": "", "REDIS_URL": "", "TOKENRY_DATABASE_POOL": "4"}, "is for PostgreSQL"),
    ({"TOKENRY_DATABASE_POOL": "0"}, "above 0"),
    ({"TOKENRY_DATABASE_POOL": "many"}, "above 0"),
    ({"TOKENRY_HTTPS": "yes"}, "1 or 0"),
    ({"TOKENRY_HTTPS": "1"}, "TOKENRY_ALLOWED_HOSTS"),
    ({"TOKENRY_TRUSTED_ORIGINS": "llm.example.com"}, "https://"),
    ({"TOKENRY_HTTPS": "1", "TOKENRY_ALLOWED_HOSTS": "a.b", "TOKENRY_TRUSTED_ORIGINS": "http://a.b"}, "https://"),
]


@pytest.mark.parametrize(("change", "word"), CONTRADICTIONS)
def test_what_cannot_work_together_is_refused(change: dict[str, str], word: str) -> None:
    refuse_contradictions(GOOD)
    with pytest.raises(ImproperlyConfigured, match=re.escape(word)) as caught:
        refuse_contradictions(GOOD | change)
    assert str(caught.value).count("\n") == 0


def test_nothing_set_is_fine() -> None:
    refuse_contradictions({})


@pytest.mark.parametrize("name", ["serve", "check", "migrate"])
def test_no_command_starts_and_each_says_one_sentence(tmp_path: Path, name: str) -> None:
    done = manage(name, TOKENRY_HOME=str(tmp_path), REDIS_URL="redis://v/0")
    assert done.returncode == 1
    assert done.stdout == ""
    assert re.fullmatch(r"REDIS_URL .*\n", done.stderr)


@pytest.mark.parametrize("peppers", ["1", f"one:{SHARED}", "1:short", f"1:{SHARED},"])
def test_bad_peppers(tmp_path: Path, peppers: str) -> None:
    done = manage("check", TOKENRY_HOME=str(tmp_path), TOKENRY_KEY_PEPPERS=peppers)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("TOKENRY_KEY_PEPPERS must be")


def test_peppers_by_version(tmp_path: Path) -> None:
    show = "from django.conf import settings; print(settings.KEY_PEPPERS)"
    env = {"TOKENRY_HOME": str(tmp_path), "TOKENRY_KEY_PEPPERS": f"1:{SHARED}, 2:{SHARED[::-1]}"}
    done = manage("shell", "-v", "0", "-c", show, **env)
    assert done.stdout.strip() == str({1: SHARED.encode(), 2: SHARED[::-1].encode()})


# One platform process without Redis


def test_a_second_process_on_the_folder_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("REDIS_URL", raising=False)
    held = stand_alone(tmp_path, "")
    with pytest.raises(NotAlone, match="REDIS_URL"):
        stand_alone(tmp_path, "")
    for each in held:
        each.close()
    assert stand_alone(tmp_path, "")


def test_a_second_process_on_the_database_is_refused(tmp_path: Path, postgres: Postgres, monkeypatch: pytest.MonkeyPatch) -> None:
    """From another machine: another folder, the same database."""
    monkeypatch.delenv("REDIS_URL", raising=False)
    held = stand_alone(tmp_path / "a", postgres.url())
    with pytest.raises(NotAlone, match="on the database"):
        stand_alone(tmp_path / "b", postgres.url())
    for each in held:
        each.close()
    for each in stand_alone(tmp_path / "b", postgres.url()):
        each.close()
    monkeypatch.setenv("REDIS_URL", "redis://v/0")
    assert stand_alone(tmp_path / "a", postgres.url()) == stand_alone(tmp_path / "a", postgres.url()) == []


def test_one_prepares_the_database_while_another_waits(postgres: Postgres) -> None:
    code = "import sys; from tokenry.alone import one_at_a_time\nwith one_at_a_time(sys.argv[1]): print('in', flush=True)"
    with one_at_a_time(postgres.url()):
        path = os.pathsep.join([str(ROOT), str(ROOT / "platform")])
        other = subprocess.Popen(
            [sys.executable, "-c", code, postgres.url()], stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": path})
        with pytest.raises(subprocess.TimeoutExpired):
            other.wait(2)
    assert other.communicate(timeout=30)[0] == "in\n"


def test_a_database_that_is_away_is_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("REDIS_URL", raising=False)
    with pytest.raises(NotAlone, match="cannot be used"):
        stand_alone(tmp_path, "postgres://u@127.0.0.1:1/t")
