"""Clients that generators make from our OpenAPI document: they are made without a remark, and compile."""

from pathlib import Path

import msgspec
import pytest

from backstay.server.application import described
from tests.clients.client_programs import MODULES, PYTHON, run_program

TYPESCRIPT = "--noEmit --strict --skipLibCheck --target es2022 --module esnext --moduleResolution bundler".split()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the document in it."""
    (tmp_path / "openapi.json").write_bytes(msgspec.json.encode(described()))
    (tmp_path / "node_modules").symlink_to(MODULES)
    return tmp_path


def test_openapi_python_client_generates_and_type_checks(folder: Path) -> None:
    program = PYTHON.parent / "openapi-python-client"
    run_program([program, "generate", "--path", "openapi.json", "--output-path", "made", "--meta", "none"], folder)

    # Its `client.py` is the same for every document, and has faults of its own.
    run_program([PYTHON, "-m", "mypy", "--follow-imports=silent", "made/models", "made/api"], folder)
    assert (folder / "made" / "models" / "session_info.py").exists()
    assert (folder / "made" / "api" / "responses" / "create_response.py").exists()


def test_datamodel_codegen_generates_models_that_read_an_event(folder: Path) -> None:
    program = PYTHON.parent / "datamodel-codegen"
    kind = ["--input-file-type", "openapi", "--output-model-type", "pydantic_v2.BaseModel", "--formatters", "builtin"]
    run_program([program, "--input", "openapi.json", "--output", "models.py", *kind], folder)

    event = '{"event": "listed", "id": "x", "data": {}}'
    use = f"import models; print(models.Text(type='text', text='tea')); assert models.ListedFrame; {event!r}"
    assert "tea" in run_program([PYTHON, "-c", use], folder)


def test_openapi_typescript_and_hey_api_generate_and_type_check(folder: Path) -> None:
    run_program([MODULES / ".bin" / "openapi-typescript", "openapi.json", "-o", "types.ts"], folder)
    hey = ["-i", "openapi.json", "-o", "hey", "-c", "@hey-api/client-fetch"]
    run_program([MODULES / ".bin" / "openapi-ts", *hey], folder)
    (folder / "use.ts").write_text(
        """
import type { paths } from "./types";
import { follow, listSessions, createResponse } from "./hey";

type Sessions = paths["/api/sessions"]["get"]["responses"]["200"]["content"]["application/json"];
export const titles = (list: Sessions): (string | null)[] => list.sessions.map((session) => session.title);
export async function use(): Promise<void> {
  const { data: sessions } = await listSessions();
  const { stream } = await follow({ query: { feed: true } });
  for await (const frame of stream) console.log(frame, sessions?.sessions.length);
  await createResponse({ body: { model: "default", input: "hello" } });
}
"""
    )

    run_program(["node", MODULES / ".bin" / "tsc", *TYPESCRIPT, "--lib", "es2022,dom,dom.iterable", "use.ts"], folder)
