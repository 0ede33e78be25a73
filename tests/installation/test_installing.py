"""Ways to install: the metadata of the wheel, and the files for containers."""

import email.message
import email.parser
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import yaml  # type: ignore[import-untyped]  # its types are a package of their own

from backstay.config import setting_types, variable

ROOT = Path(__file__).parents[2]
SETTINGS = {*map(variable, setting_types())}


def built(folder: Path, repository: str) -> email.message.Message:
    """The metadata of a wheel that is built from a clone at this address."""
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", folder],
        cwd=ROOT,
        env=os.environ | {"BACKSTAY_REPOSITORY": repository},
        capture_output=True,
        check=True,
    )
    [wheel] = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as packed:
        [name] = [name for name in packed.namelist() if name.endswith("/METADATA")]
        return email.parser.Parser().parsestr(packed.read(name).decode())


@pytest.mark.parametrize("repository", ["https://git.example.org/backstay", ""])
def test_no_link_of_the_wheels_readme_depends_on_the_repository_around_it(tmp_path: Path, repository: str) -> None:
    metadata = built(tmp_path, repository)

    text = str(metadata.get_payload())
    links = re.findall(r"\]\(([^)\s]+)\)", text)
    assert [link for link in links if not link.startswith(("https://", "#"))] == []
    assert "# Backstay" in text
    urls = [line.split(", ")[1] for line in metadata.get_all("Project-URL") or []]
    assert all(url.startswith(repository) for url in urls)
    assert bool(urls) is bool(repository)
    for link in [*links, *urls]:
        if repository and link.startswith(f"{repository}/"):
            named = re.sub(r"^/(blob|raw)/v[^/]+/", "", link.removeprefix(repository)).partition("#")[0]
            assert (ROOT / named).exists(), link


def test_the_image_copies_files_that_exist_and_runs_without_privileges() -> None:
    joined = re.sub(r"\\\n\s*", " ", (ROOT / "Containerfile").read_text())
    steps = [line.split(maxsplit=1) for line in joined.splitlines() if line and not line.startswith("#")]

    known = {"FROM", "RUN", "COPY", "WORKDIR", "ENV", "USER", "VOLUME", "EXPOSE", "HEALTHCHECK", "CMD"}
    assert {step for step, _ in steps} <= known
    assert all(re.search(r":\d", rest) for step, rest in steps if step == "FROM")  # a version, not `latest`
    for step, rest in steps:
        if step == "COPY" and not rest.startswith("--from"):
            assert all((ROOT / source).exists() for source in rest.split()[:-1]), rest
    last = dict(steps)
    assert int(last["USER"]) > 0
    assert last["CMD"].startswith('["backstay", "serve"')
    assert set(re.findall(r"BACKSTAY_[A-Z_]+", joined)) <= SETTINGS


def container_engine() -> str:
    """A program that builds images and can reach its daemon, if it has one."""
    for program in ("podman", "docker"):
        if (
            shutil.which(program)
            and subprocess.run([program, "info"], capture_output=True, check=False).returncode == 0
        ):
            return program
    pytest.skip("no container engine runs here (Debian: apt install podman)")


def test_the_image_is_built_and_runs_where_an_engine_is() -> None:
    engine, image = container_engine(), f"backstay-test-{os.getpid()}"
    [base] = set(re.findall(r"^FROM (\S+)", (ROOT / "Containerfile").read_text(), re.MULTILINE))
    if subprocess.run([engine, "pull", base], capture_output=True, check=False).returncode != 0:
        pytest.skip(f"{base} cannot be fetched here")
    subprocess.run([engine, "build", "-f", "Containerfile", "-t", image, "."], cwd=ROOT, check=True)
    try:
        run = [engine, "run", "--rm", "--read-only", "--tmpfs", "/var/lib/backstay:mode=1777", image]
        answer = subprocess.run([*run, "backstay", "send", "calc 6*7"], capture_output=True, text=True, check=True)
        assert "42" in answer.stdout
    finally:
        subprocess.run([engine, "rmi", "--force", image], check=True)


def test_the_compose_file_waits_for_the_database_and_knows_our_settings() -> None:
    services = yaml.safe_load((ROOT / "compose.yaml").read_text())["services"]

    server = services["server"]
    assert (ROOT / server["build"]["dockerfile"]).exists()
    assert server["depends_on"] == {"database": {"condition": "service_healthy"}}
    assert services["database"]["healthcheck"]["test"]
    assert server["environment"]["BACKSTAY_DB"].startswith("postgresql://")
    assert set(server["environment"]) <= SETTINGS
    assert server["read_only"] is True
    assert server["cap_drop"] == ["ALL"]
    volumes = yaml.safe_load((ROOT / "compose.yaml").read_text())["volumes"]
    for service in services.values():
        assert {volume.partition(":")[0] for volume in service["volumes"]} <= set(volumes)


def test_a_clone_is_installed_by_pip_without_an_index(tmp_path: Path) -> None:
    packages = tmp_path / "packages"
    options = ["--no-deps", "--no-build-isolation", "--no-index", "--target", str(packages)]
    subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", *options, str(ROOT)], check=True)

    told = subprocess.run(
        [sys.executable, "-c", "import backstay; print(backstay.__file__)"],
        env=os.environ | {"PYTHONPATH": str(packages)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert told.stdout.startswith(str(packages))
    assert (packages / "bin" / "backstay").exists()
